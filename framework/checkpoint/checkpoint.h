// Checkpoints: the state of a training run in a directory PATH.
//   model.safetensors  the weights: variables of the model, trained or not (VariableRole)
//   state.safetensors  all other global variables: slots, counters, moving averages of weights
//   manifest.json      roles, shapes, dtypes, devices, checksums, the session's step, the caller's
//                      numbers
// Keys are logical names, without prefixes of towers. Copies (VariableInfo::copy_of) are not stored
// but set from their originals, so a checkpoint fits any placement, number of towers and variable
// policy. Local variables are neither stored nor set.
//
// A save replaces nothing: each has a folder of its own, such as step-20. It is written to
// PATH.tmp-<process>-<count> and synced, then renamed to PATH, and the parent is synced. So PATH is
// a whole checkpoint or nothing, whenever a process or machine dies.
#pragma once
#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "belfry/framework/base/error.h"
#include "belfry/framework/base/file_system.h"
#include "belfry/framework/base/json.h"
#include "belfry/framework/checkpoint/weight_choice.h"
#include "belfry/framework/run/session.h"

namespace belfry {

// A value that is not finite would be saved, and must not be.
class NotFiniteError : public InvalidArgument {
 public:
  using InvalidArgument::InvalidArgument;
};

struct CheckpointInfo {
  std::string path;  // the directory that was read, absolute
  std::uint64_t step = 0;
  JsonValue extra = JsonValue::object();  // what the caller of save_checkpoint added
  // Set by restore_checkpoint: the tensors without a variable in the graph, sorted.
  std::vector<std::string> left_out = {};
};

struct SaveOptions {
  // Whether a value that is not finite is NotFiniteError. Else it is saved, and a warning names it.
  bool refuse_not_finite = false;
};

struct RestoreOptions {
  // Variables that may be lacking. In the checkpoint: they keep their values. In the graph: their
  // tensors are left out without a word.
  std::vector<std::string> optional = {};
  // Whether every tensor must have its variable: to go on with the same model and optimizer.
  bool whole = false;
};

// Saves the variables and the step of a session between two runs, with `extra`, an object. Throws
// IoError if something is at `path` already, other than an empty directory, or if a write fails.
// Nothing is at `path` then, but if only the last sync failed, the checkpoint is, and may not
// outlast a crash of the machine. Throws InvalidArgument if the session is not intact() or is run
// meanwhile, or if its variables make a manifest of more than kMostJsonBytes.
void save_checkpoint(Session& session, const std::string& path,
                     const JsonValue& extra = JsonValue::object(),
                     FileSystem& files = local_file_system(), const SaveOptions& options = {});

// A copy of what save_checkpoint() would write, made between two runs. Any thread may save it
// later, while the session goes on. The graph must outlive it, and be frozen.
class CheckpointSnapshot {
 public:
  // Throws InvalidArgument as save_checkpoint() does.
  CheckpointSnapshot(Session& session, const JsonValue& extra);
  // Saves as save_checkpoint() does.
  void save(const std::string& path, FileSystem& files = local_file_system(),
            const SaveOptions& options = {}) const;

 private:
  std::function<void(const std::string&, FileSystem&, const SaveOptions&)> save_;
};

// Sets all global variables of the session's graph, their copies, and the step; clears what a
// failed run left. Leaves out other tensors, such as an optimizer's slots if the graph is the model
// alone, and logs them. Warns of values that are not finite, and sets them. It holds the whole
// checkpoint in memory, and checks it before it sets anything: a failed restore changes nothing. If
// the link `path` leads to another checkpoint meanwhile, that is read. Throws NotFoundError if
// there is no checkpoint. Throws IoError naming file, tensor and byte of a damaged or foreign one,
// or a missing file. Throws InvalidArgument naming the variable and its line if the checkpoint
// lacks a variable of the graph, or has another shape or dtype.
CheckpointInfo restore_checkpoint(Session& session, const std::string& path,
                                  FileSystem& files = local_file_system(),
                                  const RestoreOptions& options = {});

struct LoadedWeights {
  WeightChoice values = WeightChoice::kRaw;  // kRaw or kAverage
  std::vector<std::string> taken;
  std::vector<std::string> initial;   // weights of the graph that the checkpoint lacks
  std::vector<std::string> left_out;  // weights that the graph lacks
  // Weights of both, with another shape or type, which is told, too. They stay as they are, such
  // as a new head of a model that is trained on.
  std::vector<std::string> unlike;
};

// Sets those weights of the session's graph that the checkpoint has, too, by name, and their
// copies. All else stays as it is: slots and counters of optimizers, averages of weights, the step.
// Throws as restore_checkpoint() does, except for weights that only one of both has, or that have
// another shape or type. Throws InvalidArgument if no weight fits, and as choose_weights().
LoadedWeights load_weights(Session& session, const std::string& path,
                           WeightChoice choice = WeightChoice::kValidated,
                           FileSystem& files = local_file_system());

// Sets all weights of the session's graph, and leaves all else as it is. For graphs that predict.
// Logs what it leaves out, and throws, as restore_checkpoint() does, and as choose_weights().
void restore_weights(Session& session, const std::string& path,
                     WeightChoice choice = WeightChoice::kValidated,
                     FileSystem& files = local_file_system());

// The result of restore_checkpoint(), from the manifest alone.
CheckpointInfo inspect_checkpoint(const std::string& path, FileSystem& files = local_file_system());

// Whether a directory has the files of a checkpoint, so that nothing else may be written into it.
bool is_checkpoint(const std::string& directory, FileSystem& files = local_file_system());

// A name in the directory that no save has written, which is lost if the directory is removed. ""
// if there is none.
std::string foreign_name_in(const std::string& directory, FileSystem& files = local_file_system());

}  // namespace belfry
