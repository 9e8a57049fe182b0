#include "belfry/framework/checkpoint/tensor_files.h"

#include <algorithm>
#include <string_view>
#include <utility>

#include "belfry/framework/base/error.h"
#include "belfry/framework/base/require.h"
#include "belfry/framework/base/text.h"

namespace belfry {
namespace {

constexpr std::string_view kIndexEnd = ".json";
constexpr const char* kNamesInFolder[] = {kShardIndex, kWeightsFile};

// The file or index that `path` stands for.
std::string find_tensor_file(const std::string& path, FileSystem& files) {
  if (files.target_kind(path) != FileKind::kDirectory) return path;
  for (const char* const name : kNamesInFolder)
    if (files.exists(cat(path, "/", name))) return cat(path, "/", name);
  throw NotFoundError(
      cat(path, ": the folder has neither ", kNamesInFolder[0], " nor ", kNamesInFolder[1]));
}

// Fewer bytes than asked for mean that the file has become shorter.
std::vector<std::byte> read_range(ReadableFile& file, std::uint64_t begin, std::uint64_t bytes,
                                  const std::string& path) {
  std::vector<std::byte> read(bytes);
  file.seek(begin);
  const std::size_t count = file.read(read);
  require<IoError>(count == bytes, path, ": ends at byte ", begin + count, ", expected byte ",
                   begin + bytes, "; was it written meanwhile?");
  return read;
}

// Files of tensors by the names of the tensors.
std::map<std::string, std::string> read_index(const std::string& path, FileSystem& files) {
  const std::vector<std::byte> bytes = files.read(path);
  std::map<std::string, std::string> shards;
  try {
    const JsonValue json =
        JsonValue::parse({reinterpret_cast<const char*>(bytes.data()), bytes.size()});
    for (const auto& [name, shard] : json.at("weight_map").members()) {
      const std::string& file = shard.text();
      require(!file.empty() && file.find('/') == file.npos && file != "." && file != "..",
              shard.where(), "'", shown(file), "' is no name of a file beside the index");
      shards.emplace(name, file);
    }
  } catch (const InvalidArgument& error) {
    throw IoError(cat(path, ": no index of safetensors files: ", error.what()));
  }
  return shards;
}

}  // namespace

TensorFiles::TensorFiles(const std::string& path, FileSystem& files)
    : path_(find_tensor_file(path, files)) {
  if (path_.ends_with(kIndexEnd))
    add_shards(files);
  else
    metadata_ = add_part(path_, files).metadata;
}

SafetensorsHeader TensorFiles::add_part(const std::string& path, FileSystem& files) {
  std::unique_ptr<ReadableFile> file = files.open(path);
  const std::uint64_t size = file->size();
  const auto first =
      read_range(*file, 0, std::min<std::uint64_t>(size, sizeof(std::uint64_t)), path);
  const auto begin = read_range(*file, 0, safetensors_header_bytes(first, size, path), path);
  SafetensorsHeader header = read_safetensors_header(begin, size, path);
  for (const auto& [name, tensor] : header.tensors) {
    const auto [other, is_new] = part_of_.emplace(name, parts_.size());
    require<IoError>(is_new, path, ": tensor '", shown(name), "' at byte ", tensor.begin, " is in ",
                     is_new ? "" : parts_[other->second].path, ", too");
    tensors_.emplace(name, tensor);
  }
  parts_.push_back({path, std::move(file)});
  return header;
}

void TensorFiles::add_shards(FileSystem& files) {
  const std::map<std::string, std::string> shards = read_index(path_, files);
  const std::string folder = path_.substr(0, path_.rfind('/') + 1);
  std::map<std::string, std::size_t> part_of_file;
  for (const auto& [name, file] : shards)
    if (!part_of_file.contains(file)) {
      part_of_file.emplace(file, parts_.size());
      add_part(folder + file, files);
    }
  for (const auto& [name, file] : shards) {
    const auto part = part_of_.find(name);
    require<IoError>(part != part_of_.end() && part->second == part_of_file.at(file), folder, file,
                     ": has no tensor '", shown(name), "', which ", path_, " says it has");
  }
  for (const auto& [name, tensor] : tensors_)
    require<IoError>(shards.contains(name), place_of(name), ": ", path_, " does not list it");
}

std::vector<std::byte> TensorFiles::read(const std::string& name) const {
  const StoredTensor& tensor = tensors_.at(name);
  const Part& part = parts_[part_of_.at(name)];
  std::vector<std::byte> values = read_range(*part.file, tensor.begin, tensor.bytes(), part.path);
  check_stored_values(tensor, values, part.path);
  return values;
}

std::string TensorFiles::place_of(const std::string& name) const {
  return cat(parts_[part_of_.at(name)].path, ": tensor '", shown(name), "' at byte ",
             tensors_.at(name).begin);
}

}  // namespace belfry
