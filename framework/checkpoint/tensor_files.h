// The safetensors files of a model, as other programs write them: one file, or several (shards)
// with an index. Tensors are read one at a time.
//   model.safetensors.index.json  {"metadata": {...},
//                                  "weight_map": {"name": "model-00001-of-00002.safetensors", ...}}
#pragma once
#include <cstddef>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "belfry/framework/base/file_system.h"
#include "belfry/framework/checkpoint/safetensors.h"

namespace belfry {

// Names in a folder with a model: of the only file, or of the index of several.
inline constexpr char kWeightsFile[] = "model.safetensors";
inline constexpr char kShardIndex[] = "model.safetensors.index.json";

class TensorFiles {
 public:
  // `path` is a file, an index, or a folder with model.safetensors.index.json or model.safetensors.
  // Reads the headers. Throws NotFoundError and IoError naming the file, the byte or the line, and
  // the tensor. It does so, too, if the index and the shards list different tensors.
  explicit TensorFiles(const std::string& path, FileSystem& files = local_file_system());

  const std::string& path() const { return path_; }
  // By name, of all files.
  const std::map<std::string, StoredTensor>& tensors() const { return tensors_; }
  // Of a single file; of shards none.
  const std::map<std::string, std::string>& metadata() const { return metadata_; }
  // Reads the values of one of tensors(). Throws IoError.
  std::vector<std::byte> read(const std::string& name) const;
  // "DIR/model.safetensors: tensor 'wte.weight' at byte 4096".
  std::string place_of(const std::string& name) const;

 private:
  struct Part {
    std::string path;
    std::unique_ptr<ReadableFile> file;
  };

  SafetensorsHeader add_part(const std::string& path, FileSystem& files);
  void add_shards(FileSystem& files);

  std::string path_;
  std::vector<Part> parts_;
  std::map<std::string, StoredTensor> tensors_;
  std::map<std::string, std::size_t> part_of_;  // the index of a tensor's file
  std::map<std::string, std::string> metadata_;
};

}  // namespace belfry
