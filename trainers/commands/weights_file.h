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
  bool state = false;  // the rest, too: slots and counters
};

struct ExportedWeights {
  std::string file;  // its bytes
  std::size_t tensors = 0;
  std::vector<std::string> permuted;  // names of those whose axes were permuted
};

// All trainable variables, and the averages that layers keep and need to predict: variables called
// .../EMA that belong to no trainable one. The file's metadata have the format ("belfry"), the
// layout and the step.
ExportedWeights export_weights(const StoredCheckpoint& checkpoint,
                               const ExportOptions& options = {});

struct ImportOptions {
  // Without one, that which the file's metadata name, else Belfry's.
  std::optional<WeightLayout> layout = {};
  bool overwrite = false;  // the checkpoint that is at the path
};

struct ImportedWeights {
  std::size_t tensors = 0;            // that the file has
  std::vector<std::string> kept;      // names of those that it lacks: state, as it was
  std::vector<std::string> permuted;  // as of ExportedWeights
  WeightLayout layout = WeightLayout::kBelfry;
};

// Saves a checkpoint at `path`: that of `like` with the values of the safetensors file `weights`.
// State that the file lacks is that of `like`, and so are step and position. Throws InvalidArgument
// or IoError, naming the file, the tensor and both types. It does so for a tensor that `like`
// lacks, a trainable variable that the file lacks, and one of another type; and if there is
// something at `path` and it may not be overwritten. Then nothing has changed.
ImportedWeights import_weights(const std::string& weights, const StoredCheckpoint& like,
                               const std::string& path, const ImportOptions& options = {},
                               FileSystem& files = local_file_system());

}  // namespace belfry
