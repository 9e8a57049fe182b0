// What is in checkpoints, for people and programs (`belfry checkpoint ls`).
#pragma once
#include <string>

#include "belfry/framework/base/file_system.h"
#include "belfry/framework/base/json.h"
#include "belfry/framework/checkpoint/stored_checkpoint.h"

namespace belfry {

struct Listing {
  std::string text;  // lines, each with its end
  Json json = Json::object();
};

// Of one checkpoint, from its manifest: {path, step, epoch, seed, shards, bytes, time, extra,
// trainable_elements, tensors: [{name, dtype, shape, bytes, trainable}]}. What the manifest does
// not say is null.
Listing list_checkpoint(const CheckpointHead& head, FileSystem& files = local_file_system());

// Of a run directory: {run, checkpoints: [{name, step, bytes, time, latest, best, error}]}. One
// that cannot be read has `error`, and no step.
Listing list_run(const std::string& run, FileSystem& files = local_file_system());

// Of tensors and manifest.
std::uint64_t stored_bytes(const Manifest& manifest);

}  // namespace belfry
