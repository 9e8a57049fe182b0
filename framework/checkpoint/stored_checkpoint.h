// Reads a checkpoint without a session: to inspect it, compare it, or copy from it.
#pragma once
#include <span>
#include <string>

#include "belfry/framework/base/file_system.h"
#include "belfry/framework/checkpoint/checkpoint_manifest.h"
#include "belfry/framework/checkpoint/safetensors.h"

namespace belfry {

// The manifest of a checkpoint, and where it is.
struct CheckpointHead {
  std::string directory;  // absolute
  Manifest manifest;
};

// A whole checkpoint in memory, already checked.
struct StoredCheckpoint {
  CheckpointHead head;
  Safetensors model, state;

  // The values of one of head.manifest.tensors.
  std::span<const std::byte> values(const std::string& name) const;
};

// Reads only the manifest. Both throw as restore_checkpoint() does (checkpoint.h): NotFoundError
// if there is no checkpoint; IoError naming file, tensor and byte of a damaged or foreign one.
CheckpointHead read_checkpoint_head(const std::string& path,
                                    FileSystem& files = local_file_system());
StoredCheckpoint read_checkpoint(const std::string& path, FileSystem& files = local_file_system());

}  // namespace belfry
