// Reads a checkpoint that a run may remove at the same time.
#pragma once
#include <cstddef>
#include <string>
#include <vector>

#include "belfry/framework/base/error.h"
#include "belfry/framework/base/file_system.h"
#include "belfry/framework/checkpoint/checkpoint_manifest.h"
#include "belfry/framework/checkpoint/safetensors.h"

namespace belfry {

// The manifest of the checkpoint in `directory`. Both throw IoError if a file is missing.
Manifest read_manifest(FileSystem& files, const std::string& directory);
// The whole file `name`, checked against the manifest.
Safetensors read_tensors(FileSystem& files, const std::string& directory, const std::string& name,
                         const Manifest& manifest);

// Bytes of the manifest of the checkpoint at `path`; none if it cannot be read.
std::vector<std::byte> manifest_bytes(FileSystem& files, const std::string& path);

// Returns what read() makes of the checkpoint. If read() fails because the link `path` has been
// pointed to another checkpoint meanwhile, it reads that one.
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
