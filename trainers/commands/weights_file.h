// Weights as one safetensors file, which other programs read and write (`belfry checkpoint export`
// and `import`).
#pragma once
#include <cstddef>
#include <optional>
#include <string>
#include <vector>

#include "belfry/framework/base/file_system.h"
#include "belfry/framework/checkpoint/stored_checkpoint.h"
#include "belfry/trainers/commands/weight_layout.h"

namespace belfry {

struct ExportOptions {
  WeightLayout layout = WeightLayout::kBelfry;
  bool state = false;  // also export the rest: slots and counters
};

struct ExportedWeights {
  std::string file;  // the bytes of the file
  std::size_t tensors = 0;
  std::vector<std::string> permuted;  // names of tensors whose axes were permuted
};

// Exports all trainable variables, and the averages that layers keep and need to predict: variables
// called .../EMA that belong to no trainable one. The file's metadata have the format ("belfry"),
// the layout and the step.
ExportedWeights export_weights(const StoredCheckpoint& checkpoint,
                               const ExportOptions& options = {});

struct ImportOptions {
  // Without one, the layout that the file's metadata name, else Belfry's.
  std::optional<WeightLayout> layout = {};
  bool overwrite = false;  // replace the checkpoint at the path
};

struct ImportedWeights {
  std::size_t tensors = 0;            // in the file
  std::vector<std::string> kept;      // names of state that the file lacks: it stays as it was
  std::vector<std::string> permuted;  // as in ExportedWeights
  WeightLayout layout = WeightLayout::kBelfry;
};

// Saves a checkpoint at `path`: `like` with the values of the safetensors file `weights`. It takes
// state that the file lacks, step and position from `like`. Throws InvalidArgument or IoError,
// naming the file, the tensor and both types. It does so if `like` lacks a tensor of the file, the
// file lacks a trainable variable, or a type differs. It also throws if something is at `path` that
// may not be overwritten. Then nothing has changed.
ImportedWeights import_weights(const std::string& weights, const StoredCheckpoint& like,
                               const std::string& path, const ImportOptions& options = {},
                               FileSystem& files = local_file_system());

}  // namespace belfry
