#include "belfry/framework/checkpoint/checkpoint_manifest.h"

#include <algorithm>
#include <charconv>

#include "belfry/framework/base/crc32.h"
#include "belfry/framework/base/error.h"
#include "belfry/framework/base/require.h"
#include "belfry/framework/base/text.h"
#include "belfry/framework/checkpoint/checkpoint_folder_impl.h"

namespace belfry {
namespace {

constexpr std::string_view kFormat = "belfry checkpoint";
constexpr std::uint64_t kVersion = 1;
constexpr std::string_view kCrcKey = "\"crc32\"";
constexpr std::size_t kDigits = 8;

std::uint32_t crc32_from(const JsonValue& json) {
  const std::string& text = json.text();
  std::uint32_t value = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value, 16);
  require(error == std::errc() && end == text.data() + text.size() && text.size() == kDigits,
          "crc32 '", shown(text), "' is not ", kDigits, " hexadecimal digits");
  return value;
}

std::uint32_t crc32_of(std::string_view text) {
  return belfry::crc32_of(std::as_bytes(std::span(text)));
}

JsonValue body_of(const Manifest& manifest) {
  JsonValue files = JsonValue::object(), tensors = JsonValue::object();
  for (const auto& [name, file] : manifest.files)
    files.set(name,
              JsonValue::object().set("bytes", file.bytes).set("crc32", hex(file.crc32, kDigits)));
  for (const auto& [name, entry] : manifest.tensors) {
    JsonValue tensor = JsonValue::object()
                           .set("file", entry.file)
                           .set("dtype", safetensors_name(entry.dtype))
                           .set("shape", shape_to_json(entry.shape))
                           .set("role", name_of(entry.role))
                           .set("trainable", entry.trainable);
    if (!entry.average_of.empty()) tensor.set("average_of", entry.average_of);
    tensor.set("device", entry.device).set("crc32", hex(entry.crc32, kDigits));
    tensors.set(name, std::move(tensor));
  }
  JsonValue body = JsonValue::object();
  body.set("format", kFormat)
      .set("version", kVersion)
      .set("step", manifest.step)
      .set("extra", manifest.extra)
      .set("files", std::move(files))
      .set("tensors", std::move(tensors));
  return body;
}

// The text before the checksum of the manifest itself, which is its last member.
std::string_view before_crc(std::string_view text) { return text.substr(0, text.rfind(kCrcKey)); }

void check_crc(std::string_view text, const JsonValue& json) {
  const std::uint32_t found = crc32_of(before_crc(text)), wanted = crc32_from(json.at("crc32"));
  require(found == wanted, "damaged: its CRC-32 is ", hex(found, kDigits), ", but it says ",
          hex(wanted, kDigits));
}

Manifest::Entry entry_from(const std::string& name, const JsonValue& json) {
  try {
    Manifest::Entry entry{.file = json.at("file").text(),
                          .dtype = dtype_of_safetensors(json.at("dtype").text()),
                          .shape = shape_from_json(json.at("shape")),
                          .device = json.at("device").text(),
                          .crc32 = crc32_from(json.at("crc32"))};
    entry.trainable = entry.file == kModelFile;  // in older versions
    if (const JsonValue* const role = json.find("role")) {
      entry.role = find_variable_role(role->text());
      entry.trainable = json.at("trainable").str() == "true";
    }
    if (const JsonValue* const of = json.find("average_of")) entry.average_of = of->text();
    return entry;
  } catch (const InvalidArgument& error) {
    throw InvalidArgument(cat("tensor '", shown(name), "': ", error.what()));
  }
}

// What a tensor of a checkpoint without roles is. Weights that were not trained were in the file of
// the state, too: what layers made themselves, such as "bn/mean/EMA" or the "conv/W" of a frozen
// layer. All else there belonged to a variable, as "fc/W/Adam" does, or is known by its name.
void derive_role(Manifest& manifest, const std::string& name) {
  constexpr std::string_view kCounter = "/step";
  Manifest::Entry& entry = manifest.tensors.at(name);
  if (entry.file == kModelFile) return;
  entry.role = VariableRole::kState;
  const std::string_view owner = name_of_averaged(name);
  if (const auto weight = manifest.tensors.find(std::string(owner));
      weight != manifest.tensors.end() && weight->second.dtype == entry.dtype &&
      weight->second.shape == entry.shape) {
    entry.role = VariableRole::kAverage;
    entry.average_of = owner;
    return;
  }
  if (name == "loss_scale" || name == cat(kWeightAverage, "/num_updates")) return;
  if (name.ends_with(kCounter) && entry.dtype == DType::kI64 && entry.shape.rank() == 0) return;
  for (std::size_t slash = name.find('/'); slash != name.npos; slash = name.find('/', slash + 1))
    if (manifest.tensors.contains(name.substr(0, slash))) return;
  entry.role = VariableRole::kWeight;
}

// An average stands for its weight, so it must match it.
void check_average(const Manifest& manifest, const std::string& name) {
  const Manifest::Entry& entry = manifest.tensors.at(name);
  if (entry.role != VariableRole::kAverage) return;
  const auto weight = manifest.tensors.find(entry.average_of);
  require(weight != manifest.tensors.end() && weight->second.role == VariableRole::kWeight &&
              weight->second.dtype == entry.dtype && weight->second.shape == entry.shape,
          "tensor '", shown(name), "' is the average of '", shown(entry.average_of),
          "', which is no weight of its type");
}

// Throws InvalidArgument, which Manifest::parse() turns into IoError.
Manifest read_manifest(std::string_view text) {
  const JsonValue json = JsonValue::parse(text);
  require(json.kind() == JsonValue::Kind::kObject && json.find("format") &&
              json.at("format").kind() == JsonValue::Kind::kString &&
              json.at("format").text() == kFormat,
          "no manifest of a checkpoint: expected an object with \"format\": \"", kFormat, "\"");
  const std::uint64_t version = json.at("version").unsigned_integer();
  require(version == kVersion, "is of version ", version, " of the format; this Belfry reads ",
          kVersion);
  check_crc(text, json);
  Manifest manifest{.step = json.at("step").unsigned_integer(), .extra = json.at("extra")};
  require(manifest.extra.kind() == JsonValue::Kind::kObject, "'extra' is no object");
  for (const auto& [name, file] : json.at("files").members())
    manifest.files[name] = {file.at("bytes").unsigned_integer(), crc32_from(file.at("crc32"))};
  for (const auto& [name, entry] : json.at("tensors").members()) {
    const Manifest::Entry& read = manifest.tensors[name] = entry_from(name, entry);
    require(manifest.files.contains(read.file), "tensor '", shown(name), "' is in file '",
            shown(read.file), "', which is not listed");
  }
  for (const auto& [name, entry] : json.at("tensors").members())
    if (!entry.find("role")) derive_role(manifest, name);
  for (const auto& [name, entry] : manifest.tensors) check_average(manifest, name);
  return manifest;
}

std::string type_of(DType dtype, const Shape& shape) { return cat(safetensors_name(dtype), shape); }

}  // namespace

std::uint64_t Manifest::shown_step() const {
  const JsonValue* const steps = extra.find("steps");
  if (!steps) return step;
  switch (steps->kind()) {
    case JsonValue::Kind::kUnsigned: return steps->unsigned_integer();
    case JsonValue::Kind::kInteger:
      return steps->integer() < 0 ? step : static_cast<std::uint64_t>(steps->integer());
    default: return step;
  }
}

std::string Manifest::str() const {
  const std::string text = body_of(*this).set("crc32", "").str(1);
  const std::string_view before = before_crc(text);
  return cat(before, kCrcKey, ": \"", hex(crc32_of(before), kDigits), "\"\n}\n");
}

Manifest Manifest::parse(std::string_view text, const std::string& path) {
  try {
    return read_manifest(text);
  } catch (const InvalidArgument& error) {
    throw IoError(cat(path, ": ", error.what()));
  }
}

void Manifest::find_damage(const std::string& name, std::span<const std::byte> bytes,
                           const std::string& path) const {
  const auto listed = files.find(name);
  if (listed == files.end()) return;
  std::vector<StoredTensor> stored;
  stored.reserve(tensors.size());
  for (const auto& [key, entry] : tensors)
    if (entry.file == name)
      stored.push_back({.name = key, .dtype = entry.dtype, .shape = entry.shape});
  const std::string head = lay_out_safetensors(stored, kFileMetadata);
  const auto wanted = std::as_bytes(std::span(head));
  const auto [expected, found] = std::ranges::mismatch(wanted, bytes);
  if (expected == wanted.end()) return;
  // An earlier version may have written another header.
  if (listed->second.bytes == bytes.size() && listed->second.crc32 == crc32_of(bytes)) return;
  const auto at = static_cast<std::size_t>(expected - wanted.begin());
  // The header describes tensors in the order of their names.
  std::string tensor;
  std::size_t from = 0;
  for (const auto& [key, entry] : tensors) {
    if (entry.file != name) continue;
    from = head.find(cat(JsonValue(key), ":{"), from);
    if (from > at && !tensor.empty()) break;
    tensor = cat(" of tensor '", shown(key), "'");
  }
  throw IoError(cat(path, ": damaged, or another file: byte ", at, ", in the header", tensor,
                    ", is ", found == bytes.end() ? "missing" : "not what was written"));
}

void Manifest::verify(const std::string& name, const Safetensors& content) const {
  const std::string& path = content.file();
  const auto listed = files.find(name);
  require<IoError>(listed != files.end(), path, ": the manifest does not list this file");
  std::map<std::uint64_t, std::pair<std::uint64_t, std::uint32_t>> sums;  // bytes and CRC, by place
  for (const auto& [key, tensor] : content.tensors()) {
    const std::string where = cat(path, ": tensor '", shown(key), "' at byte ", tensor.begin);
    const auto found = tensors.find(key);
    require<IoError>(found != tensors.end() && found->second.file == name, where,
                     ": the manifest does not list it for this file");
    const Entry& entry = found->second;
    require<IoError>(entry.dtype == tensor.dtype && entry.shape == tensor.shape, where, ": is ",
                     type_of(tensor.dtype, tensor.shape), ", but the manifest says ",
                     type_of(entry.dtype, entry.shape));
    const std::uint32_t crc = crc32_of(content.values(tensor));
    require<IoError>(crc == entry.crc32, where, " to ", tensor.end, ": damaged: its CRC-32 is ",
                     hex(crc, kDigits), ", but the manifest says ", hex(entry.crc32, kDigits));
    if (tensor.bytes() > 0) sums[tensor.begin] = {tensor.bytes(), crc};
  }
  for (const auto& [key, entry] : tensors)
    require<IoError>(entry.file != name || content.tensors().contains(key), path, ": tensor '",
                     shown(key), "' is missing: byte 8, the header, does not list it");
  require<IoError>(content.bytes().size() == listed->second.bytes, path, ": has ",
                   content.bytes().size(), " bytes, but the manifest says ", listed->second.bytes);
  // The tensors lie one behind the other, up to the end.
  const std::uint64_t first = sums.empty() ? content.bytes().size() : sums.begin()->first;
  std::uint32_t crc = crc32_of(content.bytes().first(first));
  for (const auto& [begin, sum] : sums) crc = joined_crc32(crc, sum.second, sum.first);
  require<IoError>(crc == listed->second.crc32, path, ": damaged, from byte 0: its ", "CRC-32 is ",
                   hex(crc, kDigits), ", but the manifest says ",
                   hex(listed->second.crc32, kDigits));
}

}  // namespace belfry
