// The command line of every training program.
#pragma once
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "belfry/framework/group/launcher.h"
#include "belfry/trainers/callbacks/early_stop.h"
#include "belfry/trainers/callbacks/evaluation.h"
#include "belfry/trainers/core/trainer.h"
#include "belfry/trainers/flags/auto_flags.h"
#include "belfry/trainers/flags/flag_defaults.h"
#include "belfry/trainers/flags/flag_parser.h"
#include "belfry/trainers/flags/optimizer_flags.h"
#include "belfry/trainers/options/option.h"
#include "belfry/trainers/program/run_flags.h"

namespace belfry {

// Files to read or write; "" for none.
struct FileFlags {
  std::string data_dir;
  BadRecordPolicy bad_records = {};
  std::string algorithms, trace_file, memory_report, metrics, json;
  std::string step;        // --write_step
  bool overwrite = false;  // may replace the run
};

// Inspections that a program makes instead of training, or while it trains.
struct InspectionFlags {
  bool dry_run = false;
  bool summary = false;
  bool mfu = false;     // measures the peak of the devices, and reports the share that is reached
  std::string explain;  // a node; "" for none
  int check_equivalence = 0;     // steps in every mode; 0: train instead
  std::string replay;            // the directory of a run whose steps are computed again; "": none
  std::int64_t replay_step = 0;  // the last of them

  // Whether the program only plans: nothing runs, and GPUs need not exist.
  bool plans() const { return dry_run || summary || !explain.empty(); }
};

// The exit code of a program that stalls.
inline constexpr int kStallExitCode = 75;

// The processes that train together.
struct GroupFlags {
  bool alone = false;     // --mpi=off
  bool insecure = false;  // may meet without a token
  std::chrono::milliseconds meeting_timeout = TcpGroupOptions().timeout;
  LauncherFound launcher;                // the launcher of several processes
  int processes = 1;                     // how many the launcher has started, or a dry run plans
  WatchOptions watch;                    // how processes watch each other
  int stall_exit_code = kStallExitCode;  // if watch.stall_end, or the timeout of NCCL, ends the run
};

// Whether flags were on the command line, where that matters in addition to their values.
struct GivenFlags {
  bool batch = false;  // --batch_size or --global_batch_size
  bool shards = false;
};

// All flags, with defaults filled in, and checked against each other.
struct TrainFlags {
  std::string kind;  // --trainer: a TrainerKind's name
  // All options except model, optimizer and callbacks (trainer_options()). If the program only
  // plans, the session is a dry run. `allreduce` is "" for trainers that combine nothing.
  TrainerOptions trainer;
  std::string links;          // the file of a machine, for "auto" and predictions of time
  int global_batch_size = 0;  // replaces the batch size per device; 0: not given
  OptimizerFlags optimizer;
  std::optional<EarlyStopOptions> early_stop;
  EvaluationOptions evaluation;
  FileFlags files;
  InspectionFlags inspection;
  RunFlags run;
  GroupFlags group;
  GivenFlags given;
  JsonValue config =
      JsonValue::object();  // the content of config.json: flags, and what was chosen automatically
  std::string help;         // not empty if --help was given: print it and do nothing else
  std::shared_ptr<const Options<TrainFlags>> table;  // the rows of all flags

  bool plans() const { return inspection.plans(); }
  // After how many steps the run is saved in memory; 0: never.
  std::int64_t memory_save_every_steps() const;
  // How many copies of the state the run may hold: none if it saves no checkpoints, one to write a
  // checkpoint from, and those in memory.
  int copies_of_state() const;
  // The mode of the trainer async; "" for other trainers.
  std::string async() const;
};

// Makes the options of a trainer from the flags, the model, and the optimizer, or those of the
// losses if there are several, as with_flags() changes them. Callbacks are left out. Reads the file
// of --links at once, and throws if it is wrong. Measures the machine only when a choice must be
// made.
TrainerOptions trainer_options(const TrainFlags& flags, const ModelFunction& model,
                               const Optimizer& optimizer, std::vector<LossOptions> losses = {});

// Adds to flags.config the settings of the program's optimizer that no flag sets: a constant rate
// as a flag, and the others under `chosen`.
void add_to_config(TrainFlags& flags, const Optimizer& optimizer);

// Reads --name=value and --name value. `-` and `_` are alike in names, and the last of several
// values wins. Throws FlagError for unknown flags (with the nearest name), impossible values, and
// flags that contradict each other (naming both).
TrainFlags parse_flags(std::span<const char* const> arguments, const FlagDefaults& defaults);

// The same flags for a program that also has others. Make it before FlagParser::parse(), to which
// it adds the flags, and call read() afterwards.
class TrainFlagSet {
 public:
  // `parser` must outlive it.
  TrainFlagSet(FlagParser& parser, FlagDefaults defaults);
  TrainFlagSet(const TrainFlagSet&) = delete;
  TrainFlagSet& operator=(const TrainFlagSet&) = delete;

  // `batch_size` is the default of --batch_size, if it was not known before. `compares_auto`: the
  // program's own flags name `auto`, so flags about its choice are not refused.
  TrainFlags read(std::optional<int> batch_size = {}, bool compares_auto = false) const;

 private:
  void read_run(TrainFlags& flags) const;
  JsonValue resolved_config(const TrainFlags& flags) const;

  const FlagParser& parser_;
  FlagDefaults defaults_;
  TrainFlags flags_;  // with the table; set by the parser
};

}  // namespace belfry
