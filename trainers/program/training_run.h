// The state that a training program resumes from, and the run directory that it writes.
#pragma once
#include <exception>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "belfry/framework/base/json.h"
#include "belfry/framework/checkpoint/checkpoint.h"
#include "belfry/trainers/names/name_rules.h"
#include "belfry/trainers/program/flags.h"
#include "belfry/trainers/runs/hash_log.h"
#include "belfry/trainers/runs/memory_saves.h"
#include "belfry/trainers/runs/memory_watch.h"
#include "belfry/trainers/runs/restart_times.h"
#include "belfry/trainers/runs/run_directory.h"
#include "belfry/trainers/runs/run_log.h"
#include "belfry/trainers/runs/run_saver.h"
#include "belfry/trainers/runs/stats_log.h"
#include "belfry/trainers/runs/stop_on_request.h"
#include "belfry/trainers/util/console.h"

namespace belfry {

// Takes the run directory. Null if no flag names one. With several processes only rank 0 takes it;
// the others get null, and only read it. Throws FlagError for a directory that cannot be taken.
// Throws Error if another process has it.
std::unique_ptr<RunDirectory> take_run_directory(const TrainFlags& flags);

// The run of one call of a program. Call callbacks(), adopt(), restore(), finished(), begin() and
// end() in this order.
class TrainingRun {
 public:
  // Finds the newest checkpoint. `directory` as take_run_directory() gives it. Throws FlagError for
  // flags that may not change the run in it. Throws IoError if the directory holds a run that ended
  // and no checkpoints, and for a --load that is no checkpoint. Throws FlagError, too, if its
  // weights need other values of flags.
  TrainingRun(const TrainFlags& flags, Console& console, std::unique_ptr<RunDirectory> directory);
  ~TrainingRun();

  // The checkpoint to resume from; none for a new run.
  const std::optional<CheckpointInfo>& found() const { return found_; }
  // The flag that named it: "--resume=PATH".
  const std::string& written() const { return written_; }
  // Takes the global batch and the shards of the run that was found, unless flags set them.
  void adopt(TrainerOptions& options) const;
  // The callbacks of --run_dir and of signals.
  std::vector<std::shared_ptr<Callback>> callbacks();
  // Resumes from the newest checkpoint that can be read, or loads variables. Throws FlagError for
  // the checkpoint of another run.
  void restore(Trainer& trainer);
  // Loads the weights that --load names, if it is given.
  void load(Session& session);
  // The results of the run, if it has ended and nothing is left to do; then nothing is written. A
  // run that --early_stop has ended counts as ended only if the flag is still the same.
  std::optional<JsonValue> finished(const Trainer& trainer) const;
  // Prints where the run resumes. Writes config.json and placement.txt, which are known before
  // training. Removes what the run replaces.
  void begin(Trainer& trainer, const std::string& placement);
  // How a call of the program ends. `error` is null unless training failed, or writing something
  // after it did.
  struct End {
    int exit_code = 0;
    const std::exception* error = nullptr;
    bool is_trained = true;  // whether it trained to its end, or until it was interrupted
  };
  // Writes summary.json: `report`, and how the run ended.
  void end(Trainer& trainer, const JsonValue& report, const End& end);
  // Writes the trace of a step, counted from 1. A failure to write is a warning.
  void write_trace(std::int64_t step, const std::string& trace);

  // How long the restart of this run took (RestartTimes::json()); null if it was none.
  JsonValue restart() const { return restart_ ? restart_->json() : JsonValue(); }
  StopOnRequest& stop() const { return *stop_; }
  // Text for people about the last checkpoint that is still there; "" if there is none, or no run
  // directory.
  std::string saved() const;

 private:
  void look_at_loaded();
  void require_needed(const std::string& option, const std::string& value) const;
  void make_parts();
  void find(const TrainFlags& flags);
  void find_newest(const std::string& path);
  void find_saved_in_memory();
  void give_up_memory(const Error& error);
  std::string look_for_newest();
  void check_new_start() const;
  void check_replacing();
  void require_room(const TrainFlags& flags);
  void restore_one_of(Trainer& trainer);
  bool is_stopped_otherwise() const;
  // "; --dropout was 0.1 and is now 0.5": the recipe's flags that differ from the run's; or "".
  std::string other_flags_of_program() const;
  void go_on(LineFile& lines) const;
  JsonValue config_of_run(const Trainer& trainer);
  std::string began_from() const;
  void write_graph(const BuiltTraining& built);
  bool is_own(const std::string& checkpoint) const;

  const TrainFlags& flags_;
  Console& console_;
  std::unique_ptr<RunDirectory> directory_;
  std::shared_ptr<RunLog> log_;
  std::shared_ptr<MemoryWatch> memory_;
  std::shared_ptr<StatsLog> stats_;
  std::shared_ptr<HashLog> hashes_;
  std::unique_ptr<LineFile> older_hashes_;  // those of the run before, if this one records none
  std::shared_ptr<RunSaver> saver_;
  std::shared_ptr<MemorySaver> memory_saver_;
  std::shared_ptr<RestartTimes> restart_;  // null unless this is a restart
  std::shared_ptr<StopOnRequest> stop_;
  std::string written_;
  std::string searched_;                          // the run or checkpoint to resume from
  std::vector<std::string> candidates_;           // its checkpoints, the newest first
  std::string in_memory_;                         // the one of candidates_ that is in memory, or ""
  int looks_ = 0;                                 // how often the checkpoints were listed
  std::optional<CheckpointInfo> found_, loaded_;  // to resume from; of --load
  std::optional<NameRules> names_;                // of --names
  // What a program must be told that goes on with weights of other programs (needs_in()).
  std::map<std::string, std::string> needs_;
  std::optional<std::int64_t> resumed_from_;
  // Whether begin() removes the old run, and the steps of its checkpoints that begin() removes
  // otherwise. Everything that can be refused is refused before that.
  bool replaces_ = false;
  std::vector<std::int64_t> later_;
  std::string resumed_line_;                 // for people; "" for a run from the start
  std::optional<JsonValue> line_positions_;  // of the checkpoint, if this directory has it
};

}  // namespace belfry
