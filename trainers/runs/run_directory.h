// The folder of a training run, from which a later call resumes it.
//   DIR/config.json                 the flags of the run, for --config
//   DIR/checkpoints/step-00000100   as framework/checkpoint/checkpoint.h describes
//   DIR/checkpoints/latest, best    links to one of them
//   DIR/stats.jsonl                 a line per step and per evaluation (stats_log.h)
//   DIR/hashes.jsonl                hashes of all variables (hash_log.h)
//   DIR/tensorboard/                event files (tensorboard.h)
//   DIR/traces/step-00000100.json   what the devices did in a step
//   DIR/log.txt                     what the run printed
//   DIR/placement.txt               the device of every node
//   DIR/graph.safetensors           the graph that predicts the model's outputs (graph_file.h)
//   DIR/difference.json             what processes had that differed, until it is judged
//                                   (replica_check.h)
//   DIR/summary.json                results, once the run has ended
#pragma once
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "belfry/framework/base/file_system.h"
#include "belfry/framework/base/json.h"
#include "belfry/trainers/util/run_files.h"

namespace belfry {

class OutputFiles;

inline constexpr char kTensorBoardFolder[] = "tensorboard", kTracesFolder[] = "traces";
inline constexpr char kLatestLink[] = "latest", kBestLink[] = "best";

// The member of config.json with the choices that a run made, for people. Another run chooses
// again. Its member kProgramMember is the name of the program.
inline constexpr char kChosen[] = "chosen", kProgramMember[] = "program";
// Its member for a run that began elsewhere than at initial values: "--load=PATH", "--resume=PATH".
inline constexpr char kBeganFrom[] = "began_from";

// Its lock, which is there while a program trains in it, or was killed.
inline constexpr char kRunLock[] = "run.lock";

// One process at a time has it.
class RunDirectory {
 public:
  // Makes the folder, or takes the one that is there, and locks it. Throws IoError if it cannot be
  // written, or holds files but no run: neither a config.json of a run, nor checkpoints of one that
  // has lost it. Throws Error if another process has it.
  explicit RunDirectory(const std::string& path, FileSystem& files = local_file_system());
  // Removes the folders that it made, if they are empty, so that a refused start leaves nothing
  // behind.
  ~RunDirectory();
  RunDirectory(const RunDirectory&) = delete;
  RunDirectory& operator=(const RunDirectory&) = delete;

  FileSystem& files() const { return files_; }
  const std::string& path() const { return path_; }  // absolute
  std::string path_of(std::string_view name) const;
  std::string checkpoint_path(std::int64_t step) const;
  // Whether no run has written into it.
  bool is_empty() const;

  // The steps of its checkpoints, ascending.
  std::vector<std::int64_t> checkpoints() const;
  // Removes temporary files that killed processes have left, and a link to a best checkpoint that
  // no longer exists. Call it only while this process is not saving.
  void tidy();
  // Throws IoError, and removes nothing, if somebody else has put files into the checkpoint.
  void remove_checkpoint(std::int64_t step);
  // Throws IoError, naming the file, if remove_checkpoint() would refuse one of these.
  void require_removable(std::span<const std::int64_t> steps) const;
  // Makes the link `name` lead to the checkpoint of `step`.
  void point(std::string_view name, std::int64_t step);

  // Replaces a file atomically.
  void write(std::string_view name, const std::string& text);
  // Writes the trace of a step to its own file.
  void write_trace(std::int64_t step, const std::string& text);
  // The content of a file; none if it is missing.
  std::optional<std::string> read(std::string_view name) const;
  // Removes all that a run has written, and nothing else. Throws as remove_checkpoint() does.
  void clear();

 private:
  void require_run() const;
  bool may_hold_before_a_run(const std::string& name) const;

  FileSystem& files_;
  std::string path_;
  std::unique_ptr<FileLock> lock_;
  std::vector<std::string> made_;  // folders that it has made, the innermost first
};

// The step of "step-00000100"; none for other names.
std::optional<std::int64_t> step_of_checkpoint(std::string_view name);

// The checkpoints of the run directory `path`, ascending, and the path of one. Both work without
// locking the directory.
std::vector<std::int64_t> checkpoints_in(FileSystem& files, const std::string& path);
std::string checkpoint_in(const std::string& path, std::int64_t step);
// Its config.json; none if there is no such file, or if no run has written it.
std::optional<JsonValue> run_config(FileSystem& files, const std::string& path);

// Makes `outputs` refuse every file that another flag would write over files or checkpoints of the
// run in `path`. Errors name the run by `written`, e.g. "--run_dir=DIR".
void reserve_run(OutputFiles& outputs, const std::string& written, const std::string& path);

}  // namespace belfry
