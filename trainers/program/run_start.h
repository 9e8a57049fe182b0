// What a run begins from: a checkpoint on disk, a save in memory, other weights, or initial values.
#pragma once
#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "belfry/framework/base/json.h"
#include "belfry/framework/checkpoint/checkpoint.h"
#include "belfry/trainers/names/name_rules.h"
#include "belfry/trainers/program/flags.h"
#include "belfry/trainers/runs/line_file.h"
#include "belfry/trainers/runs/run_directory.h"
#include "belfry/trainers/util/console.h"

namespace belfry {

class Session;
class Trainer;

// Follows --resume, --load and --overwrite. What can be refused is refused before anything changes.
class RunStart {
 public:
  // Finds the newest checkpoint. `directory`: null in processes that do not have it. Throws
  // FlagError for flags that may not change the run in it. Throws IoError if the directory holds a
  // run that ended and no checkpoints, and for a --load that is no checkpoint. Throws FlagError,
  // too, if its weights need other values of flags.
  RunStart(const TrainFlags& flags, Console& console, RunDirectory* directory);

  // The checkpoint to resume from; none for a new run.
  const std::optional<CheckpointInfo>& found() const { return found_; }
  // The flag that named it: "--resume=PATH".
  const std::string& written() const { return written_; }
  // What a program must be told that resumes with weights of other programs (needs_in()).
  const std::map<std::string, std::string>& needs() const { return needs_; }
  // Takes the global batch and the shards of the run that was found, unless flags set them. For an
  // evaluation alone, also divides the batch among the devices. Throws FlagError if the processes
  // cannot.
  void adopt(TrainerOptions& options) const;

  // Resumes from the newest checkpoint that can be read, or loads variables. Throws FlagError for
  // the checkpoint of another run.
  void restore(Trainer& trainer);
  // Loads the weights that --load names, if it is given.
  void load(Session& session);

  // What restore() has resumed from: the step, and a line for people; none and "" for a run from
  // the start.
  std::optional<std::int64_t> resumed_from() const { return resumed_from_; }
  const std::string& resumed_line() const { return resumed_line_; }
  // kBeganFrom of this run; "" for initial values.
  std::string began_from() const;

  // Whether remove_replaced() removes the run in the directory; else it may remove later steps.
  bool replaces_run() const { return replaces_run_; }
  void remove_replaced();
  // Cuts off the lines of steps that are made again.
  void cut_lines(LineFile& lines) const;

 private:
  void adopt_batch(TrainerOptions& options) const;
  void check_replacing();
  void find();
  void find_on_disk(const std::string& path);
  void find_newest(const std::string& path);
  void find_saved_in_memory();
  void give_up_memory(const Error& error);
  void leave_memory(const Error& error);
  std::string look_for_newest();
  void look_for_others() const;
  void check_new_start() const;
  void require_room();
  void look_at_loaded();
  void require_needed(const std::string& option, const std::string& value) const;
  void restore_one_of(Trainer& trainer);
  // "; --dropout was 0.1 and is now 0.5": the recipe's flags that differ from the run's; or "".
  std::string other_flags_of_program() const;
  bool is_own(const std::string& checkpoint) const;

  const TrainFlags& flags_;
  Console& console_;
  RunDirectory* const directory_;
  std::string written_;
  std::string searched_;                 // the run or checkpoint to resume from
  std::vector<std::string> candidates_;  // its checkpoints, the newest first
  std::string in_memory_;                // the one of candidates_ that is in memory, or ""
  std::string disk_damage_;  // why no checkpoint on disk can be read, if one in memory can
  int looks_ = 0;            // how often the checkpoints were listed
  std::optional<CheckpointInfo> found_, loaded_;  // to resume from; of --load
  std::optional<NameRules> names_;                // of --names
  std::map<std::string, std::string> needs_;
  bool replaces_run_ = false;
  std::vector<std::int64_t> later_;  // steps of checkpoints that this run replaces
  std::optional<std::int64_t> resumed_from_;
  std::string resumed_line_;
  std::optional<JsonValue> line_positions_;  // of the checkpoint, if this directory has it
};

}  // namespace belfry
