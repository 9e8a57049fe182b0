// Checkpoints: the state of a training run in a directory PATH.
//   model.safetensors  the weights: variables of the model, trained or not (VariableRole)
//   state.safetensors  all other global variables: slots, counters, moving averages of weights
//   manifest.json      roles, shapes, dtypes, devices, checksums, the session's step, the caller's
//                      numbers
// Keys are logical names, without prefixes of towers. Copies (VariableInfo::copy_of) are not stored
// but set from their originals, so a checkpoint fits any placement, number of towers and variable
// policy. Local variables are neither stored nor set.
//
// Whenever a process or machine dies, the old checkpoint or the new one can be read. A new one is
// written to PATH.tmp-<process>-<count> and synced. The old one is renamed to PATH.belfry-old, then
// the new one to PATH, and the parent is synced after each. At last PATH.belfry-old is removed.
// Processes that save to one PATH do so one after the other, and the last one wins. A save holds
// the lock PATH.lock, which ends with its process. If the lock can be had, no process uses a folder
// PATH.tmp-*.
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

// Suffixes of what a save writes and removes beside PATH. Use no such names for anything else.
inline constexpr char kOldCheckpoint[] = ".belfry-old", kCheckpointLock[] = ".lock";

// A value that is not finite would be saved, and must not be.
class NotFiniteError : public InvalidArgument {
 public:
  using InvalidArgument::InvalidArgument;
};

struct CheckpointInfo {
  std::string path;     // the directory that was read, absolute: PATH or PATH.belfry-old
  bool is_old = false;  // PATH.belfry-old was read, as there is no PATH
  std::uint64_t step = 0;
  JsonValue extra = JsonValue::object();  // what the caller of save_checkpoint added
  // Set by restore_checkpoint: the tensors without a variable in the graph, sorted.
  std::vector<std::string> left_out = {};
};

struct SaveOptions {
  // Whether to replace a checkpoint of other variables, or one whose manifest cannot be read.
  bool overwrite = false;
  // Variables that the graph or the replaced checkpoint may lack.
  std::vector<std::string> optional = {};
  // Whether the replaced checkpoint stays at PATH.belfry-old until settle_checkpoint().
  bool keep_old = false;
  // Whether a value that is not finite is NotFiniteError even if nothing is replaced.
  bool refuse_not_finite = false;
  // How long to wait for other processes that save to this path.
  double patience_seconds = 60;
};

struct RestoreOptions {
  // Variables that may be lacking. In the checkpoint: they keep their values. In the graph: their
  // tensors are left out without a word.
  std::vector<std::string> optional = {};
  // Whether every tensor must have its variable: to go on with the same model and optimizer.
  bool whole = false;
};

// Throws IoError unless a checkpoint can be saved at `path`. Its parent must exist and be writable.
// `path` may be a checkpoint, an empty directory or nothing. It must be no file, and no directory
// of something else, which would be lost. Nobody else may be saving there for longer than
// patience_seconds. Programs call this before they train. Leaves all as it is.
void check_checkpoint_path(const std::string& path, FileSystem& files = local_file_system());
// Also throws InvalidArgument, naming a variable, if there is a checkpoint of variables with other
// names, shapes or dtypes than those of `graph`, unless it may be overwritten.
void check_checkpoint_path(const Graph& graph, const std::string& path,
                           const SaveOptions& options = {},
                           FileSystem& files = local_file_system());

// Saves the variables and the step of a session between two runs, with `extra`, an object. Removes
// folders PATH.tmp-<digits>-<digits> of killed processes that hold nothing but a checkpoint's
// files. Throws as check_checkpoint_path does, and IoError if a write fails. Then the old
// checkpoint remains and restores, at PATH or PATH.belfry-old. If only the last sync failed, the
// new one is in place, but may not outlast a crash of the machine. The old one is then at
// PATH.belfry-old. Throws InvalidArgument if the session is not intact() or is run meanwhile, or if
// its variables make a manifest of more than kMostJsonBytes. Logs what it cannot remove at the end.
//
// A value that is not finite never replaces a finite one. Throws NotFiniteError naming the first
// variable with NaN or an infinity, and keeps the old checkpoint. It saves if the old one has such
// a value of each of these variables, too. If there was no checkpoint, it saves, and a warning
// names the first variable.
//
// Returns the text of the manifest. settle_checkpoint() recognises this checkpoint by it.
std::string save_checkpoint(Session& session, const std::string& path,
                            const JsonValue& extra = JsonValue::object(),
                            FileSystem& files = local_file_system(),
                            const SaveOptions& options = {});

// A copy of what save_checkpoint() would write, made between two runs. Any thread may save it
// later, while the session goes on. The graph must outlive it, and be frozen.
class CheckpointSnapshot {
 public:
  // Throws InvalidArgument as save_checkpoint() does.
  CheckpointSnapshot(Session& session, const JsonValue& extra);
  // Saves as save_checkpoint() does.
  std::string save(const std::string& path, FileSystem& files = local_file_system(),
                   const SaveOptions& options = {}) const;

 private:
  std::function<std::string(const std::string&, FileSystem&, const SaveOptions&)> save_;
};

// Call it after a save with keep_old that returned `manifest`. It removes the checkpoint before it.
// If `keep_new` is false, it puts that one back in place of the new one. Does nothing if there is
// none, or if another process has saved to `path` since. Throws IoError as save_checkpoint() does;
// whenever it fails, a restore finds one of both. Returns whether it did something.
bool settle_checkpoint(const std::string& path, const std::string& manifest, bool keep_new,
                       FileSystem& files = local_file_system());

// Sets all global variables of the session's graph, their copies, and the step; clears what a
// failed run left. Leaves out other tensors, such as an optimizer's slots if the graph is the model
// alone, and logs them. Reads `path`, or `path`.belfry-old if there is none, and logs which. Warns
// of values that are not finite, and sets them. It holds the whole checkpoint in memory, and checks
// it before it sets anything: a failed restore changes nothing. If another process replaces the
// checkpoint meanwhile, it is read anew. Throws NotFoundError if there is no checkpoint. Throws
// IoError naming file, tensor and byte of a damaged or foreign one, or a missing file. Throws
// InvalidArgument naming the variable and its line if the checkpoint lacks a variable of the graph,
// or has another shape or dtype.
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
