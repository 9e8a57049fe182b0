// A checkpoint that is read without a session: to look at it, to compare it, to copy out of it.
#pragma once
#include <span>
#include <string>

#include "belfry/framework/base/file_system.h"
#include "belfry/framework/checkpoint/checkpoint_manifest.h"
#include "belfry/framework/checkpoint/safetensors.h"

namespace belfry {

// What a checkpoint says of itself.
struct CheckpointHead {
  std::string directory;  // that was read, absolute: PATH or PATH.belfry-old
  bool is_old = false;    // PATH.belfry-old, as there is no PATH
  Manifest manifest;

  // Whether the tensor is of a trainable variable: of model.safetensors.
  static bool is_trainable(const Manifest::Entry& entry);
};

// All of it, in memory, and known to be sound.
struct StoredCheckpoint {
  CheckpointHead head;
  Safetensors model, state;

  // Of one of head.manifest.tensors.
  std::span<const std::byte> values(const std::string& name) const;
};

// From the manifest alone. Both throw as restore_checkpoint() does (checkpoint.h): NotFound if
// there is no checkpoint; IoError naming file, tensor and byte of a damaged or foreign one.
CheckpointHead read_checkpoint_head(const std::string& path,
                                    FileSystem& files = local_file_system());
StoredCheckpoint read_checkpoint(const std::string& path, FileSystem& files = local_file_system());

}  // namespace belfry
