// The run directory that a training program writes.
#pragma once
#include <exception>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "belfry/framework/base/json.h"
#include "belfry/trainers/program/flags.h"
#include "belfry/trainers/program/run_start.h"
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

// The run of one call of a program. Call callbacks(), start().adopt(), start().restore(),
// finished(), begin() and end() in this order.
class TrainingRun {
 public:
  // Throws as RunStart does. `directory` as take_run_directory() gives it.
  TrainingRun(const TrainFlags& flags, Console& console, std::unique_ptr<RunDirectory> directory);
  ~TrainingRun();

  // What it begins from.
  RunStart& start() { return start_; }
  const RunStart& start() const { return start_; }
  // The callbacks of --run_dir and of signals.
  std::vector<std::shared_ptr<Callback>> callbacks();
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
  void make_parts();
  bool is_stopped_otherwise() const;
  JsonValue config_of_run(const Trainer& trainer);
  void write_graph(const BuiltTraining& built);

  const TrainFlags& flags_;
  Console& console_;
  std::unique_ptr<RunDirectory> directory_;
  std::shared_ptr<RestartTimes> restart_;  // null unless this is a restart
  RunStart start_;
  std::shared_ptr<RunLog> log_;
  std::shared_ptr<MemoryWatch> memory_;
  std::shared_ptr<StatsLog> stats_;
  std::shared_ptr<HashLog> hashes_;
  std::unique_ptr<LineFile> older_hashes_;  // those of the run before, if this one records none
  std::shared_ptr<RunSaver> saver_;
  std::shared_ptr<MemorySaver> memory_saver_;
  std::shared_ptr<StopOnRequest> stop_;
};

}  // namespace belfry
