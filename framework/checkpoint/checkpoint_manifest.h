// manifest.json of a checkpoint: describes the other files, so that damage is found and named.
//   {"format": "belfry checkpoint", "version": 1, "step": 200, "extra": {...},
//    "files": {"model.safetensors": {"bytes": 1234, "crc32": "89abcdef"}, ...},
//    "tensors": {"fc/w": {"file": "model.safetensors", "dtype": "F32", "shape": [2,3],
//                         "role": "weight", "trainable": true,
//                         "device": "/job:.../device:CPU:1", "crc32": "01234567"}, ...},
//    "crc32": "..."}
// Roles are those of variables (VariableRole). The average of "fc/w" also has "average_of": "fc/w".
// Checkpoints of older versions have no roles: they follow from files and names.
// CRC-32 is zlib's. The last one covers the bytes of the manifest before its key.
#pragma once
#include <cstdint>
#include <map>
#include <span>
#include <string>
#include <string_view>

#include "belfry/framework/base/json.h"
#include "belfry/framework/checkpoint/safetensors.h"
#include "belfry/framework/graph/variable_role.h"

namespace belfry {

// Metadata in the files of tensors.
inline const std::map<std::string, std::string> kFileMetadata = {{"format", "belfry"}};

struct Manifest {
  struct File {
    std::uint64_t bytes = 0;
    std::uint32_t crc32 = 0;
  };
  struct Entry {
    std::string file;
    DType dtype = DType::kF32;
    Shape shape = {};
    std::string device = {};  // where its variable was
    std::uint32_t crc32 = 0;
    VariableRole role = VariableRole::kWeight;
    bool trainable = true;
    std::string average_of = {};  // of a kAverage: the name of the weight, which has the same type
  };

  std::uint64_t step = 0;                 // of the session
  JsonValue extra = JsonValue::object();  // the caller's
  std::map<std::string, File> files;
  std::map<std::string, Entry> tensors;

  // For people: the caller's member `steps`, if it is a whole number, else `step`. A caller may run
  // a session several times per step.
  std::uint64_t shown_step() const;
  std::string str() const;
  // `path` is for errors. Throws IoError if the text is not a manifest, is damaged, or is of
  // another version.
  static Manifest parse(std::string_view text, const std::string& path);

  // Throws IoError, naming a byte and its tensor, if the header of the file `name` differs from
  // what was written. `path` is for errors.
  void find_damage(const std::string& name, std::span<const std::byte> bytes,
                   const std::string& path) const;
  // Throws IoError, naming the tensor and its offset, unless the file `name` is `content`.
  void verify(const std::string& name, const Safetensors& content) const;
};

}  // namespace belfry
