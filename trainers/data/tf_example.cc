#include "belfry/trainers/data/tf_example.h"

#include "belfry/framework/base/require.h"
#include "belfry/framework/base/text.h"

namespace belfry {
namespace {

using ProtoBytes = std::span<const std::byte>;

enum class WireType { kVarint = 0, k64Bits = 1, kBytes = 2, k32Bits = 5 };

struct ProtoField {
  std::uint64_t number = 0;
  WireType type = WireType::kVarint;
  std::uint64_t varint = 0;  // of kVarint
  ProtoBytes bytes = {};     // of the other types
};

// Goes through the fields of a message.
class ProtoFields {
 public:
  explicit ProtoFields(ProtoBytes message) : rest_(message) {}

  bool next(ProtoField& field) {
    if (rest_.empty()) return false;
    const std::uint64_t key = varint();
    field = {.number = key >> 3, .type = static_cast<WireType>(key & 7)};
    switch (field.type) {
      case WireType::kVarint: field.varint = varint(); break;
      case WireType::k64Bits: field.bytes = take(8); break;
      case WireType::k32Bits: field.bytes = take(4); break;
      case WireType::kBytes: field.bytes = take(varint()); break;
      default: throw InvalidArgument(cat("no message of protobuf: a field of type ", key & 7));
    }
    return true;
  }

  std::uint64_t varint() {
    constexpr int kMostShift = 63;
    std::uint64_t value = 0;
    for (int shift = 0; shift <= kMostShift; shift += 7) {
      const auto byte = std::to_integer<std::uint64_t>(take(1)[0]);
      value |= (byte & 0x7F) << shift;
      if (byte < 0x80) return value;
    }
    throw InvalidArgument("no message of protobuf: a number of more than 64 bits");
  }

 private:
  ProtoBytes take(std::uint64_t count) {
    require(count <= rest_.size(), "no message of protobuf: a field of ", count,
            " bytes where it has ", rest_.size(), " left");
    const ProtoBytes taken = rest_.first(static_cast<std::size_t>(count));
    rest_ = rest_.subspan(taken.size());
    return taken;
  }

  ProtoBytes rest_;
};

// The first field of this number whose content is bytes.
std::optional<ProtoBytes> first_bytes(ProtoBytes message, std::uint64_t number) {
  ProtoFields fields(message);
  for (ProtoField field; fields.next(field);)
    if (field.number == number && field.type == WireType::kBytes) return field.bytes;
  return {};
}

bool has_key(ProtoBytes entry, std::string_view key) {
  const std::optional<ProtoBytes> found = first_bytes(entry, 1);
  if (!found) return key.empty();
  return std::string_view(reinterpret_cast<const char*>(found->data()), found->size()) == key;
}

constexpr std::uint64_t kBytesList = 1, kInt64List = 3;

ProtoBytes list_of(ProtoBytes feature, std::uint64_t number, std::string_view name,
                   std::string_view type) {
  const std::optional<ProtoBytes> list = first_bytes(feature, number);
  require(list.has_value(), "the feature ", name, " is no list of ", type);
  require(!list->empty(), "the feature ", name, " has no value");
  return *list;
}

}  // namespace

std::optional<ProtoBytes> TfExample::find(std::string_view feature) const {
  ProtoFields examples(message_);
  for (ProtoField features; examples.next(features);) {
    if (features.number != 1 || features.type != WireType::kBytes) continue;
    ProtoFields entries(features.bytes);
    for (ProtoField entry; entries.next(entry);)
      if (entry.number == 1 && entry.type == WireType::kBytes && has_key(entry.bytes, feature))
        return first_bytes(entry.bytes, 2).value_or(ProtoBytes());
  }
  return {};
}

std::optional<ProtoBytes> TfExample::bytes(std::string_view feature) const {
  const std::optional<ProtoBytes> found = find(feature);
  if (!found) return {};
  const std::optional<ProtoBytes> value =
      first_bytes(list_of(*found, kBytesList, feature, "bytes"), 1);
  require(value.has_value(), "the feature ", feature, " has no value");
  return value;
}

std::optional<std::int64_t> TfExample::integer(std::string_view feature) const {
  const std::optional<ProtoBytes> found = find(feature);
  if (!found) return {};
  ProtoFields values(list_of(*found, kInt64List, feature, "integers"));
  for (ProtoField value; values.next(value);) {
    if (value.number != 1) continue;
    if (value.type == WireType::kVarint) return static_cast<std::int64_t>(value.varint);
    if (value.type == WireType::kBytes && !value.bytes.empty())
      return static_cast<std::int64_t>(ProtoFields(value.bytes).varint());
  }
  throw InvalidArgument(cat("the feature ", feature, " has no value"));
}

}  // namespace belfry
