#include "belfry/trainers/core/data_identity.h"

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "belfry/framework/base/error.h"
#include "belfry/framework/base/text.h"
#include "belfry/trainers/util/hash.h"

namespace belfry {
namespace {

constexpr std::uint64_t kWholeFile = std::uint64_t{64} << 20, kBlock = std::uint64_t{1} << 20;
constexpr std::uint64_t kBlocks = kWholeFile / kBlock;  // of a larger file

// The samples at both ends, where no file can be looked at, or there is a folder of them.
std::string checksum_of_samples(const Dataset& data) {
  constexpr std::int64_t kMost = 64;
  const std::int64_t size = data.size();
  std::vector<std::int64_t> rows;
  for (std::int64_t i = 0; i < size; ++i)
    if (i < kMost || i >= size - kMost) rows.push_back(i);
  Fnv1a hash;
  for (const Tensor& tensor : gather_tensors(data, rows))
    hash.add({tensor.raw(), static_cast<std::size_t>(tensor.bytes())});
  return hex(hash.value(), 16);
}

// "input.txt 0123456789abcdef"
std::string name_and_checksum(const std::string& path) {
  return cat(path.substr(path.rfind('/') + 1), " ", checksum_of_file(local_file_system(), path));
}

}  // namespace

void add_data_identity(const Dataset& data, JsonValue& identity) {
  JsonValue fields = JsonValue::array(), files = JsonValue::array();
  for (const Dataset::Field& field : data.signature())
    fields.push(cat(field.name, " ", TensorType{field.shape, field.dtype}));
  const std::vector<std::string> paths = data.files();
  const bool are_files = !paths.empty() && std::ranges::all_of(paths, [](const std::string& path) {
    return local_file_system().target_kind(path) != FileKind::kDirectory;
  });
  identity.set("fields", std::move(fields)).set("samples", data.size());
  if (const LengthBuckets* const buckets = data.buckets()) {
    JsonValue lengths = JsonValue::array();
    for (const std::int64_t length : buckets->lengths) lengths.push(length);
    identity.set("buckets", std::move(lengths));
  }
  if (data.is_stream()) return;  // to look at its samples is to use them up
  if (!are_files) {
    identity.set("checksum", checksum_of_samples(data));
    return;
  }
  for (const std::string& path : paths) files.push(name_and_checksum(path));
  identity.set("files", std::move(files));
}

std::string checksum_of_file(FileSystem& files, const std::string& path) {
  const auto file = files.open(path);
  const std::uint64_t size = file->size();
  Fnv1a hash;
  std::vector<std::byte> part(kBlock);
  const auto add = [&](std::uint64_t bytes) {
    while (bytes > 0) {
      const std::size_t count = file->read(std::span(part).first(std::min(bytes, kBlock)));
      if (count == 0) return;
      hash.add(std::span(part).first(count));
      bytes -= count;
    }
  };
  if (size <= kWholeFile) {
    add(size);
    return hex(hash.value(), 16);
  }
  const std::uint64_t last = size - kBlock;
  for (std::uint64_t b = 0; b < kBlocks; ++b) {
    file->seek(b + 1 == kBlocks ? last : last / (kBlocks - 1) * b);
    add(kBlock);
  }
  return cat(hex(hash.value(), 16), " of ", size, " bytes");
}

std::string stamp_of_files(const Dataset& data) {
  FileSystem& files = local_file_system();
  std::string stamp;
  for (const std::string& path : data.files()) try {
      const bool is_folder = files.target_kind(path) == FileKind::kDirectory;
      const std::uint64_t size = is_folder ? 0 : files.open(path)->size();
      stamp += cat(path, " ", files.modified(path), " ", size, "\n");
    } catch (const Error&) {
      stamp += cat(path, " cannot be read\n");
    }
  return stamp;
}

std::string changed_file(const Dataset& data, const JsonValue& fingerprint) {
  const JsonValue* const before = fingerprint.find("files");
  if (!before) return "";
  std::size_t i = 0;
  const std::vector<std::string> paths = data.files();
  for (const JsonValue& file : before->items()) {
    if (i == paths.size()) break;
    const std::string& path = paths[i++];
    try {
      if (name_and_checksum(path) != file.text()) return path;
    } catch (const Error&) {
      return path;
    }
  }
  return "";
}

}  // namespace belfry
