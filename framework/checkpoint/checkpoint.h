// Checkpoints: the state of a training run in a directory PATH.
//   model.safetensors  the weights: variables of the model, trained or not (VariableRole)
//   state.safetensors  all other global variables: slots, counters, moving averages of weights
//   manifest.json      roles, shapes, dtypes, devices, checksums, the session's step, the caller's
//                      numbers
// Keys are logical names, without prefixes of towers. Copies (VariableInfo::copy_of) are not saved
// but set from their originals, so a checkpoint fits any placement, number of towers and variable
// policy. Local variables are neither saved nor restored.
//
// A save replaces nothing: each has its own folder, such as step-20. It is written to
// PATH.tmp-<process>-<count> and synced, then renamed to PATH, and the parent is synced. So PATH is
// a whole checkpoint or nothing, whenever a process or machine dies.
#pragma once
#include <cstdint>
#include <functional>
#include <map>
#include <string>
#include <vector>

#include "belfry/framework/base/error.h"
#include "belfry/framework/base/file_system.h"
#include "belfry/framework/base/json.h"
#include "belfry/framework/base/tensor.h"
#include "belfry/framework/checkpoint/weight_choice.h"
#include "belfry/framework/run/session.h"

namespace belfry {

// A value is not finite, and the caller asked not to save such values.
class NotFiniteError : public InvalidArgument {
 public:
  using InvalidArgument::InvalidArgument;
};

struct CheckpointInfo {
  std::string path;  // the directory that was read, absolute
  std::uint64_t step = 0;
  JsonValue extra = JsonValue::object();  // what the caller of save_checkpoint added
  // Set by restore_checkpoint(): the tensors without a variable in the graph, sorted.
  std::vector<std::string> left_out = {};
};

struct SaveOptions {
  // Whether to throw NotFiniteError for a value that is not finite. Otherwise it is saved, and a
  // warning names it. Weights that are not trained may be infinite, but not NaN.
  bool refuse_not_finite = false;
};

struct RestoreOptions {
  // Variables that may be missing in the checkpoint or in the graph. In the first case they keep
  // their values; in the second their tensors are left out silently.
  std::vector<std::string> optional = {};
  // Strict: every tensor must have its variable, as when the same model and optimizer resume.
  bool strict = false;
};

// Saves the variables and the step of a session between two runs, with `extra`, an object. Throws
// IoError if anything but an empty directory is already at `path`, or if a write fails. Nothing is
// at `path` then, except if only the last sync failed: the checkpoint is there, but may not survive
// a crash of the machine. Throws InvalidArgument if the session is not intact() or is running, or
// if its variables need a manifest of more than kMostJsonBytes.
void save_checkpoint(Session& session, const std::string& path,
                     const JsonValue& extra = JsonValue::object(),
                     FileSystem& files = local_file_system(), const SaveOptions& options = {});

// The memory of copies, by name, for the next ones: the system takes longer to give fresh memory
// than a copy takes.
using SnapshotMemory = std::map<std::string, Tensor>;

// A copy of what save_checkpoint() would write, taken between two runs. Any thread may save it
// later, while the session continues. The graph must be frozen, and outlive it.
class CheckpointSnapshot {
 public:
  // Throws InvalidArgument as save_checkpoint() does. The copy takes the place of one before, which
  // has ended, in `kept`; null: it has memory of its own.
  CheckpointSnapshot(Session& session, const JsonValue& extra, SnapshotMemory* kept = nullptr);
  // Saves as save_checkpoint() does.
  void save(const std::string& path, FileSystem& files = local_file_system(),
            const SaveOptions& options = {}) const;

 private:
  std::function<void(const std::string&, FileSystem&, const SaveOptions&)> save_;
};

// Sets all global variables of the session's graph, their copies, and the step; clears what a
// failed run left behind. Leaves out other tensors, such as an optimizer's slots if the graph is
// the model alone, and logs them. Sets values that are not finite, too, with a warning. It holds
// the whole checkpoint in memory, and checks it before it sets anything, so a failed restore
// changes nothing. If the link `path` is pointed to another checkpoint meanwhile, it reads that
// one. Throws NotFoundError if there is no checkpoint. Throws IoError naming file, tensor and byte
// of a damaged or foreign one, or a missing file. Throws InvalidArgument naming the variable and
// its line if the checkpoint lacks a variable of the graph, or has another shape or dtype.
CheckpointInfo restore_checkpoint(Session& session, const std::string& path,
                                  FileSystem& files = local_file_system(),
                                  const RestoreOptions& options = {});

struct LoadedWeights {
  WeightChoice values = WeightChoice::kRaw;  // kRaw or kAverage
  std::vector<std::string> taken;
  std::vector<std::string> initial;   // weights of the graph that the checkpoint lacks
  std::vector<std::string> left_out;  // weights that the graph lacks
  // Weights of both, with another shape or type, which each text states. They keep their values,
  // such as a new head of a model that is fine-tuned.
  std::vector<std::string> unlike;
};

// Sets by name, with their copies, those weights of the session's graph that the checkpoint also
// has. Everything else stays: slots and counters of optimizers, averages of weights, the step.
// Throws as restore_checkpoint() does, except for weights that only one of the two has, or that
// have another shape or type. Throws InvalidArgument if no weight fits, and as choose_weights().
LoadedWeights load_weights(Session& session, const std::string& path,
                           WeightChoice choice = WeightChoice::kValidated,
                           FileSystem& files = local_file_system());

// Sets all weights of the session's graph, and nothing else. For graphs that predict. Logs what it
// leaves out, and throws, as restore_checkpoint() does, and as choose_weights().
void restore_weights(Session& session, const std::string& path,
                     WeightChoice choice = WeightChoice::kValidated,
                     FileSystem& files = local_file_system());

// The result of restore_checkpoint(), only from the manifest.
CheckpointInfo inspect_checkpoint(const std::string& path, FileSystem& files = local_file_system());

// Whether a directory has the files of a checkpoint, so nothing else may be written into it.
bool is_checkpoint(const std::string& directory, FileSystem& files = local_file_system());

// A name in the directory that no save has written, and that removing the directory would lose. ""
// if there is none.
std::string foreign_name_in(const std::string& directory, FileSystem& files = local_file_system());

}  // namespace belfry
