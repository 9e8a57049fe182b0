// Checkpoints: the state of a training run in a directory PATH.
//   model.safetensors  the trainable variables
//   state.safetensors  all other global variables: slots, counters, moving averages
//   manifest.json      shapes, dtypes, devices, checksums, the session's step, the caller's numbers
// Keys are logical names, without prefixes of towers. Copies (VariableInfo::copy_of) are not stored
// but set from their originals, so a checkpoint fits any placement, number of towers and variable
// policy. Local variables are neither stored nor set.
//
// Whatever moment a process or machine dies at, the old checkpoint or the new one can be read. A
// new one is written to PATH.tmp-<process>-<count> and synced. The old one is renamed to
// PATH.belfry-old, then the new one to PATH, and the parent is synced after each. At last
// PATH.belfry-old is removed. Processes that save to one PATH do so one after the other, and the
// last one wins. Whoever saves holds the lock PATH.lock, which ends with its process. A folder
// PATH.tmp-* beside a lock that can be had is nobody's.
#pragma once
#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "belfry/framework/base/file_system.h"
#include "belfry/framework/base/json.h"
#include "belfry/framework/run/session.h"

namespace belfry {

// What a save writes and removes beside PATH: PATH and one of these. No names for anything else.
inline constexpr char kOldCheckpoint[] = ".belfry-old", kCheckpointLock[] = ".lock";

struct CheckpointInfo {
  std::string path;     // the directory that was read, absolute: PATH or PATH.belfry-old
  bool is_old = false;  // PATH.belfry-old, as there is no PATH
  std::uint64_t step = 0;
  Json extra = Json::object();  // what the caller of save_checkpoint added
  // Of restore_checkpoint: the tensors that the graph has no variables for, sorted.
  std::vector<std::string> left_out = {};
};

struct SaveOptions {
  // Replace a checkpoint of other variables, or one whose manifest cannot be read.
  bool overwrite = false;
  // Variables that only one of them needs to have.
  std::vector<std::string> optional = {};
  // What is replaced stays at PATH.belfry-old until settle_checkpoint().
  bool keep_old = false;
  // Also where nothing is replaced, a value that is not finite is InvalidArgument.
  bool refuse_not_finite = false;
  // How long to wait for others that save to this path.
  double patience_seconds = 60;
};

struct RestoreOptions {
  // Variables that may be lacking: in the checkpoint, and they keep their values; in the graph, and
  // theirs is left out without a word.
  std::vector<std::string> optional = {};
  // Every tensor must have its variable: for what goes on with the same model and optimizer.
  bool whole = false;
};

// Throws IoError unless a checkpoint can be saved at `path`. Its parent must exist and be writable.
// `path` may be a checkpoint, an empty directory or nothing, but no file and no directory of
// something else, which would be lost; nobody else may be saving there for longer than
// patience_seconds. For programs to call before they train. Leaves all as it is.
void check_checkpoint_path(const std::string& path, FileSystem& files = local_file_system());
// Also throws InvalidArgument, naming a variable, if there is a checkpoint of variables with other
// names, shapes or dtypes than those of `graph`, unless it may be overwritten.
void check_checkpoint_path(const Graph& graph, const std::string& path,
                           const SaveOptions& options = {},
                           FileSystem& files = local_file_system());

// Saves the variables and the step of a session between two runs, with `extra`, an object. Removes
// what killed processes left, PATH.tmp-<digits>-<digits>, if it holds nothing but a checkpoint's
// files. Throws as check_checkpoint_path does; IoError if a write fails. Then the old checkpoint
// remains and restores, at PATH or PATH.belfry-old. Where only the last sync failed, the new one is
// in place but may not outlast a crash of the machine, and the old one is at PATH.belfry-old;
// InvalidArgument if the session is not intact() or is run meanwhile, or has so many variables that
// the manifest has more than kMostJsonBytes. What cannot be removed at the end is logged.
//
// A value that is not finite never replaces one that is. Throws InvalidArgument naming the first
// variable with NaN or an infinity, unless the checkpoint that was there has such a value of each
// of these variables, too; else it remains. Where there was none, they are saved, and a warning
// names the first.
//
// Returns the text of the manifest, by which settle_checkpoint() knows this checkpoint.
std::string save_checkpoint(Session& session, const std::string& path,
                            const Json& extra = Json::object(),
                            FileSystem& files = local_file_system(),
                            const SaveOptions& options = {});

// What save_checkpoint() would write, copied between two runs: written later, by any thread, while
// the session goes on. The graph must outlive it, and be frozen.
class CheckpointSnapshot {
 public:
  // Throws InvalidArgument as save_checkpoint() does.
  CheckpointSnapshot(Session& session, const Json& extra);
  // As save_checkpoint().
  std::string save(const std::string& path, FileSystem& files = local_file_system(),
                   const SaveOptions& options = {}) const;

 private:
  std::function<std::string(const std::string&, FileSystem&, const SaveOptions&)> save_;
};

// After a save with keep_old that returned `manifest`: removes the checkpoint before it, or, where
// `keep_new` is false, puts that back in place of the new one. Does nothing if there is none, or if
// another process has saved to `path` since. Throws IoError as save_checkpoint() does; whatever
// moment it fails at, a restore finds one of both. Returns whether it did something.
bool settle_checkpoint(const std::string& path, const std::string& manifest, bool keep_new,
                       FileSystem& files = local_file_system());

// Sets all global variables of the session's graph, their copies, and the step; clears what a
// failed run left. What the checkpoint has besides, such as an optimizer's slots where the graph is
// the model alone, is left out, and logged. Reads `path`, or `path`.belfry-old if there is none,
// and logs which; warns of values that are not finite, and sets them. The whole checkpoint is held
// in memory and checked before anything is set: a failed restore changes nothing. One that another
// process replaces meanwhile is read anew. Throws NotFound if there is no checkpoint; IoError
// naming file, tensor and byte of a damaged or foreign one, or a file that it lacks;
// InvalidArgument naming the variable and its line if it lacks a variable of the graph, or has
// another shape or dtype.
CheckpointInfo restore_checkpoint(Session& session, const std::string& path,
                                  FileSystem& files = local_file_system(),
                                  const RestoreOptions& options = {});

struct LoadedVariables {
  std::vector<std::string> taken;
  std::vector<std::string> initial;   // of the graph, that the checkpoint lacks
  std::vector<std::string> left_out;  // of the checkpoint, that the graph lacks
  // Of both, with another shape or type, which is told, too; they stay as they are. A new head of a
  // model that is trained on is among them.
  std::vector<std::string> unlike;
};

// Sets the global variables of the session's graph that the checkpoint has, too, by name; the
// others, and the step, stay as they are. Throws as restore_checkpoint() does, but for variables
// that only one of both has, or with another shape or type; InvalidArgument if they have none in
// common.
LoadedVariables load_variables(Session& session, const std::string& path,
                               FileSystem& files = local_file_system());

// What restore_checkpoint would return, from the manifest alone.
CheckpointInfo inspect_checkpoint(const std::string& path, FileSystem& files = local_file_system());

// Whether a directory has the files of a checkpoint, so that nothing else may be written into it.
bool is_checkpoint(const std::string& directory, FileSystem& files = local_file_system());

}  // namespace belfry
