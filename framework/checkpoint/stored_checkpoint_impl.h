// How a checkpoint is read that other processes may replace meanwhile.
#pragma once
#include <cstddef>
#include <string>
#include <vector>

#include "belfry/framework/base/error.h"
#include "belfry/framework/base/file_system.h"
#include "belfry/framework/checkpoint/checkpoint_manifest.h"
#include "belfry/framework/checkpoint/safetensors.h"

namespace belfry {

// Of a checkpoint in `directory`. Both throw IoError for a file that it lacks.
Manifest read_manifest(FileSystem& files, const std::string& directory);
// The whole file `name`, which is as the manifest says.
Safetensors read_tensors(FileSystem& files, const std::string& directory, const std::string& name,
                         const Manifest& manifest);

// Of the manifest of the checkpoint at `path`; none where it cannot be read.
std::vector<std::byte> manifest_bytes(FileSystem& files, const std::string& path);

// What read() makes of the checkpoint. If that fails because another process replaced it meanwhile,
// of the new one.
template <class F>
auto read_settled(FileSystem& files, const std::string& path, const F& read) {
  constexpr int kMostTries = 10;
  for (int tries = 1;; ++tries) {
    const std::vector<std::byte> before = manifest_bytes(files, path);
    try {
      return read();
    } catch (const Error&) {
      if (tries == kMostTries || manifest_bytes(files, path) == before) throw;
    }
  }
}

}  // namespace belfry
