// Weights as safetensors files, which other programs read and write (`belfry checkpoint export` and
// `import`).
#pragma once
#include <cstddef>
#include <optional>
#include <string>
#include <vector>

#include "belfry/framework/base/file_system.h"
#include "belfry/framework/checkpoint/stored_checkpoint.h"
#include "belfry/framework/checkpoint/weight_choice.h"
#include "belfry/trainers/commands/weight_layout.h"
#include "belfry/trainers/names/name_rules.h"

namespace belfry {

struct ExportOptions {
  WeightLayout layout = WeightLayout::kBelfry;
  WeightChoice weights = WeightChoice::kValidated;
  // Export all tensors as they are, slots, counters and averages of weights, too: kRaw.
  bool state = false;
  // Under the names of another program, instead of a layout. `partial`: leave out weights that no
  // rule takes.
  const NameRules* names = nullptr;
  bool partial = false;
};

struct ExportedWeights {
  std::string file;         // the bytes of the file
  std::size_t shards = 0;   // or so many files were written,
  std::uint64_t bytes = 0;  // with so many bytes together
  std::size_t tensors = 0;
  ChosenWeights chosen;
  std::vector<std::string> permuted;  // names of tensors whose axes were permuted
  std::vector<std::string> left_out;  // for `partial`: which weights, and why
};

// Exports all weights, which are what a model needs to predict: frozen ones and the moments that
// batch norm keeps are among them. The file's metadata have the format ("belfry"), the layout, the
// step, and which weights these are ("raw" or "average"); with names the format is "pt", as
// transformers wants it, and there is no layout. Throws as choose_weights() and RenamedTensors do.
ExportedWeights export_weights(const StoredCheckpoint& checkpoint,
                               const ExportOptions& options = {});

// The same in several files, as transformers reads them: FOLDER/model-00001-of-00003.safetensors
// and so on, with at most `most` bytes of tensors in each, unless one alone has more, and their
// index, which TensorFiles reads (tensor_files.h). Tensors follow their names. Only one file is in
// memory at a time. The files replace those that are there when all are complete.
ExportedWeights export_weight_shards(const StoredCheckpoint& checkpoint,
                                     const ExportOptions& options, const std::string& folder,
                                     std::uint64_t most, FileSystem& files = local_file_system());

struct ImportOptions {
  // Without one, the layout that the file's metadata name, else Belfry's.
  std::optional<WeightLayout> layout = {};
  bool overwrite = false;  // replace the checkpoint at the path
  bool partial = false;    // with names: RenamingOptions
};

struct ImportedWeights {
  std::size_t tensors = 0;            // in the file
  std::size_t widened = 0;            // of these, converted to a wider type
  std::vector<std::string> kept;      // names of state that the file lacks: it stays as it was
  std::vector<std::string> permuted;  // as in ExportedWeights
  std::vector<std::string> begun;     // averages that the file lacks: they begin at their weights
  WeightLayout layout = WeightLayout::kBelfry;
  // With names:
  std::size_t made = 0;               // weights
  std::vector<std::string> left_out;  // tensors that no rule takes, and why
  // Weights of `like` that keep their values: those that no tensor becomes, and those that one of
  // another type would become.
  std::vector<std::string> missing, unlike;
};

// Saves a checkpoint at `path`: `like` with the values of the safetensors file `weights`, or of
// shards by their index. It takes state that the file lacks, step and position from `like`. Moving
// averages that the file lacks begin at their weights, so that the new checkpoint predicts by
// these. f16 and bf16 become f32 or f64, and f32 becomes f64, which changes no value. Throws
// InvalidArgument or IoError, naming the file, the tensor and both types. It does so if `like`
// lacks a tensor of the file, the file lacks a weight, or a type differs otherwise. It also throws
// if something is at `path` that may not be overwritten. Then nothing has changed.
ImportedWeights import_weights(const std::string& weights, const StoredCheckpoint& like,
                               const std::string& path, const ImportOptions& options = {},
                               FileSystem& files = local_file_system());

// The same for files of another program, by rules of names (TensorFiles, RenamedTensors). Without
// `like` the checkpoint has the weights alone, of step 0. It records what a program that loads it
// must be told (note_needs()).
ImportedWeights import_named_weights(const std::string& weights, const NameRules& rules,
                                     const StoredCheckpoint* like, const std::string& path,
                                     const ImportOptions& options = {},
                                     FileSystem& files = local_file_system());

}  // namespace belfry
