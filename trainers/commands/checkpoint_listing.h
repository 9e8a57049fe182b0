// Lists checkpoints for people and programs (`belfry checkpoint ls`).
#pragma once
#include <string>

#include "belfry/framework/base/file_system.h"
#include "belfry/framework/base/json.h"
#include "belfry/framework/checkpoint/stored_checkpoint.h"

namespace belfry {

struct Listing {
  std::string text;  // lines, each with a line break
  JsonValue json = JsonValue::object();
};

// Lists one checkpoint by its manifest: {path, step, epoch, seed, shards, bytes, time, extra,
// validated, weight_elements, trainable_elements, tensors: [{name, dtype, shape, bytes, role,
// trainable}]}. A value that the manifest lacks is null. `validated`: raw or average.
Listing list_checkpoint(const CheckpointHead& head, FileSystem& files = local_file_system());

// Lists a run directory: {run, checkpoints: [{name, step, bytes, time, latest, best, error}]}. A
// checkpoint that cannot be read has `error`, and no step.
Listing list_run(const std::string& run, FileSystem& files = local_file_system());

// Bytes of tensors and manifest.
std::uint64_t stored_bytes(const Manifest& manifest);

}  // namespace belfry
