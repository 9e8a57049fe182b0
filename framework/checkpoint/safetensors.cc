#include "belfry/framework/checkpoint/safetensors.h"

#include <algorithm>
#include <array>
#include <bit>
#include <utility>

#include "belfry/framework/base/allocator.h"
#include "belfry/framework/base/error.h"
#include "belfry/framework/base/memory_folder.h"
#include "belfry/framework/base/read_whole.h"
#include "belfry/framework/base/require.h"
#include "belfry/framework/base/text.h"

namespace belfry {
namespace {

// Values are written as they are in memory.
static_assert(std::endian::native == std::endian::little);

constexpr std::size_t kLengthBytes = 8, kHeaderAlignment = 8;
constexpr std::uint64_t kFarthest = std::uint64_t{1} << 62;  // offsets can be added
constexpr std::size_t kMostDims = 64;
constexpr std::string_view kMetadata = "__metadata__";

constexpr std::array kDTypes = {DType::kF16, DType::kBF16, DType::kF32, DType::kF64,
                                DType::kI32, DType::kI64,  DType::kU8,  DType::kBool};

// Offsets count from the end of the header here.
StoredTensor read_entry(const std::string& name, const JsonValue& json) {
  const std::list<JsonValue>& offsets = json.at("data_offsets").items();
  require(offsets.size() == 2, "data_offsets has ", offsets.size(), " numbers instead of 2");
  StoredTensor tensor{.name = name,
                      .dtype = dtype_of_safetensors(json.at("dtype").text()),
                      .shape = shape_from_json(json.at("shape")),
                      .begin = offsets.front().unsigned_integer(),
                      .end = offsets.back().unsigned_integer()};
  require(tensor.begin <= tensor.end && tensor.end <= kFarthest, "data_offsets ", tensor.begin,
          " and ", tensor.end, " are no part of a file");
  const auto wanted = static_cast<std::uint64_t>(tensor.shape.elements()) * size_of(tensor.dtype);
  require(tensor.bytes() == wanted, safetensors_name(tensor.dtype), tensor.shape, " takes ", wanted,
          " bytes, but data_offsets ", tensor.begin, " and ", tensor.end, " leave ",
          tensor.bytes());
  return tensor;
}

bool has_larger_elements(const StoredTensor& a, const StoredTensor& b) {
  return size_of(a.dtype) > size_of(b.dtype);
}

// Sets offsets of tensors that are sorted by name.
void set_offsets(std::vector<StoredTensor>& tensors) {
  std::vector<StoredTensor*> in_order;
  in_order.reserve(tensors.size());
  for (StoredTensor& tensor : tensors) in_order.push_back(&tensor);
  std::ranges::stable_sort(in_order, [](const StoredTensor* a, const StoredTensor* b) {
    return has_larger_elements(*a, *b);
  });
  std::uint64_t end = 0;
  for (StoredTensor* tensor : in_order) {
    tensor->begin = end;
    end += static_cast<std::uint64_t>(tensor->shape.elements()) * size_of(tensor->dtype);
    tensor->end = end;
  }
}

std::string header_of(const std::vector<StoredTensor>& tensors,
                      const std::map<std::string, std::string>& metadata) {
  std::vector<std::string> members;
  members.reserve(tensors.size() + 1);
  if (!metadata.empty()) {
    JsonValue texts = JsonValue::object();
    for (const auto& [key, text] : metadata) texts.set(key, text);
    members.push_back(cat(JsonValue(kMetadata), ":", texts));
  }
  for (std::size_t i = 0; i < tensors.size(); ++i) {
    const StoredTensor& tensor = tensors[i];
    require(tensor.name != kMetadata, "no tensor can be called '", kMetadata, "' in a file");
    require(i == 0 || tensor.name != tensors[i - 1].name, "two tensors are called '",
            shown(tensor.name), "'");
    JsonValue entry = JsonValue::object();
    entry.set("dtype", safetensors_name(tensor.dtype))
        .set("shape", shape_to_json(tensor.shape))
        .set("data_offsets", JsonValue::array(std::array{tensor.begin, tensor.end}));
    members.push_back(cat(JsonValue(tensor.name), ":", entry));
  }
  return cat("{", join(members, ","), "}");
}

}  // namespace

std::string safetensors_name(DType dtype) { return upper(name_of(dtype)); }

DType dtype_of_safetensors(std::string_view name) {
  std::vector<std::string> names;
  for (const DType dtype : kDTypes)
    if (names.emplace_back(safetensors_name(dtype)) == name) return dtype;
  throw InvalidArgument(cat("dtype '", shown(name), "' is none of ", join(names)));
}

JsonValue shape_to_json(const Shape& shape) { return JsonValue::array(shape.dims()); }

Shape shape_from_json(const JsonValue& json) {
  const std::list<JsonValue>& items = json.items();
  require(items.size() <= kMostDims, "a shape has ", items.size(), " dimensions, more than ",
          kMostDims);
  std::vector<std::int64_t> dims;
  for (const JsonValue& item : items) {
    dims.push_back(item.integer());
    require(dims.back() >= 0, "a dimension is ", dims.back());
  }
  Shape shape(std::move(dims));
  shape.elements();  // throws if they are too many
  return shape;
}

std::string lay_out_safetensors(std::vector<StoredTensor>& tensors,
                                const std::map<std::string, std::string>& metadata) {
  std::ranges::sort(tensors, {}, &StoredTensor::name);
  set_offsets(tensors);
  std::string text = header_of(tensors, metadata);
  require(text.size() < kMostJsonBytes, "a safetensors header of ", tensors.size(),
          " tensors would have ", text.size(), " bytes, more than the ", kMostJsonBytes,
          " that one may have; use fewer variables or shorter names");
  text.append((kHeaderAlignment - text.size() % kHeaderAlignment) % kHeaderAlignment, ' ');
  std::string head;
  for (std::size_t i = 0; i < kLengthBytes; ++i)
    head += static_cast<char>(std::uint64_t{text.size()} >> 8 * i & 255);
  head += text;
  for (StoredTensor& tensor : tensors) {
    tensor.begin += head.size();
    tensor.end += head.size();
  }
  std::ranges::stable_sort(tensors, has_larger_elements);
  return head;
}

std::uint64_t safetensors_header_bytes(std::span<const std::byte> begin, std::uint64_t size,
                                       const std::string& file) {
  require<IoError>(size >= kLengthBytes, file, ": ends at byte ", size,
                   ": expected the length of a safetensors header in bytes 0 to 7");
  std::uint64_t length = 0;
  for (std::size_t i = kLengthBytes; i-- > 0;)
    length = length << 8 | std::to_integer<std::uint64_t>(begin[i]);
  require<IoError>(length <= kMostJsonBytes, file, ": byte 0 announces a header of ", length,
                   " bytes, more than the ", kMostJsonBytes, " that one may have");
  require<IoError>(length <= size - kLengthBytes, file, ": truncated at byte ", size,
                   ": byte 0 announces a header of ", length, " bytes from byte 8");
  return kLengthBytes + length;
}

namespace {

// `values_begin` is where the header ends.
SafetensorsHeader parse_header(std::string_view text, std::uint64_t values_begin,
                               std::uint64_t size, const std::string& file) {
  require<IoError>(text.starts_with('{'), file, ": no safetensors file: expected '{' at byte 8");
  JsonValue json_header;
  try {
    json_header = JsonValue::parse(text);
  } catch (const InvalidArgument& error) {
    throw IoError(cat(file, ": damaged header, from byte 8: ", error.what()));
  }
  SafetensorsHeader header;
  for (const auto& [name, json] : json_header.members()) try {
      if (name == kMetadata) {
        for (const auto& [key, value] : json.members()) header.metadata.emplace(key, value.text());
        continue;
      }
      StoredTensor tensor = read_entry(name, json);
      tensor.begin += values_begin;
      tensor.end += values_begin;
      require<IoError>(tensor.end <= size, file, ": tensor '", shown(name), "' at byte ",
                       tensor.begin, ": truncated: expected its values up to byte ", tensor.end,
                       ", but the file ends at byte ", size);
      header.tensors.emplace(name, std::move(tensor));
    } catch (const InvalidArgument& error) {
      throw IoError(cat(file, ": '", shown(name), "' in the header, bytes 8 to ", values_begin - 1,
                        ": ", error.what()));
    }
  return header;
}

void check_layout(const SafetensorsHeader& header, std::uint64_t values_begin, std::uint64_t size,
                  const std::string& file) {
  std::vector<const StoredTensor*> in_order;
  in_order.reserve(header.tensors.size());
  for (const auto& [name, tensor] : header.tensors) in_order.push_back(&tensor);
  std::ranges::sort(in_order, [](const StoredTensor* a, const StoredTensor* b) {
    return std::pair(a->begin, a->end) < std::pair(b->begin, b->end);
  });
  std::uint64_t end = values_begin;
  for (const StoredTensor* tensor : in_order) {
    require<IoError>(tensor->begin == end, file, ": tensor '", shown(tensor->name),
                     "' begins at byte ", tensor->begin, ": expected byte ", end,
                     ", where what precedes it ends");
    end = tensor->end;
  }
  require<IoError>(end == size, file, ": ", size - end, " bytes from byte ", end,
                   " belong to no tensor");
}

}  // namespace

SafetensorsHeader read_safetensors_header(std::span<const std::byte> begin, std::uint64_t size,
                                          const std::string& file) {
  const std::uint64_t values_begin = safetensors_header_bytes(begin, size, file);
  const std::string_view all(reinterpret_cast<const char*>(begin.data()), begin.size());
  SafetensorsHeader header =
      parse_header(all.substr(kLengthBytes, values_begin - kLengthBytes), values_begin, size, file);
  check_layout(header, values_begin, size, file);
  return header;
}

// A C++ bool holds only 0 or 1.
void check_stored_values(const StoredTensor& tensor, std::span<const std::byte> values,
                         const std::string& file) {
  if (tensor.dtype != DType::kBool) return;
  const auto wrong = std::ranges::find_if(values, [](std::byte b) { return b > std::byte{1}; });
  require<IoError>(wrong == values.end(), file, ": tensor '", shown(tensor.name), "': byte ",
                   tensor.begin + static_cast<std::uint64_t>(wrong - values.begin()),
                   " is neither false (0) nor true (1)");
}

namespace {

FileBytes owned_bytes(MemoryBlock block) {
  const auto owner = std::make_shared<const MemoryBlock>(std::move(block));
  return {owner, {owner->data(), owner->bytes()}};
}

FileBytes owned_copy(const std::vector<std::byte>& bytes) {
  MemoryBlock copy(host_allocator(), bytes.size());
  copy.store(bytes.data());
  return owned_bytes(std::move(copy));
}

}  // namespace

FileBytes read_large_file(FileSystem& files, const std::string& path, std::uint64_t most) {
  MemoryBlock bytes;
  read_whole(*files.open(path), path, most, [&](std::uint64_t size) -> std::span<std::byte> {
    bytes = MemoryBlock(host_allocator(), size);
    return {bytes.data(), bytes.bytes()};
  });
  return owned_bytes(std::move(bytes));
}

FileBytes read_written_once(FileSystem& files, const std::string& path, std::uint64_t most) {
  if (&files == &local_file_system() && is_private_in_memory(path)) {
    const auto file = std::make_shared<const FileInMemory>(path);
    if (file->bytes().size() <= most) return {file, file->bytes()};
  }
  return read_large_file(files, path, most);
}

Safetensors::Safetensors(const std::vector<std::byte>& bytes, std::string file)
    : Safetensors(owned_copy(bytes), std::move(file)) {}

Safetensors::Safetensors(FileBytes bytes, std::string file)
    : bytes_(std::move(bytes)),
      file_(std::move(file)),
      header_(read_safetensors_header(bytes_.bytes, bytes_.bytes.size(), file_)) {
  for (const auto& [name, tensor] : header_.tensors)
    check_stored_values(tensor, values(tensor), file_);
}

}  // namespace belfry
