// The command line of every training program.
#pragma once
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "belfry/framework/group/launcher.h"
#include "belfry/trainers/callbacks/early_stop.h"
#include "belfry/trainers/core/trainer.h"
#include "belfry/trainers/flags/auto_flags.h"
#include "belfry/trainers/flags/flag_defaults.h"
#include "belfry/trainers/flags/flag_parser.h"
#include "belfry/trainers/flags/optimizer_flags.h"
#include "belfry/trainers/program/run_flags.h"

namespace belfry {

// Files that are read or written; "" for none.
struct FileFlags {
  std::string data_dir;
  BadRecordPolicy bad_records = {};
  std::string algorithms, trace_file, memory_report, save_checkpoint, restore_checkpoint, json;
  bool overwrite = false;  // another model's checkpoint at save_checkpoint, or the run
};

// What a program looks at instead of training, or beside it.
struct InspectionFlags {
  bool dry_run = false;
  bool summary = false;
  bool mfu = false;     // measures the peak of the devices, and says what share of it is reached
  std::string explain;  // a node; "" for none
  int check_equivalence = 0;  // steps in every mode; 0: train instead

  // Nothing runs, and GPUs need not exist.
  bool plans() const { return dry_run || summary || !explain.empty(); }
};

// The exit code of a program whose processes wait in vain for another.
inline constexpr int kStallExitCode = 75;

// The processes that train together.
struct GroupFlags {
  bool without_mpi = false;              // --mpi=off
  LauncherFound launcher;                // of several processes
  int processes = 1;                     // that it has started, or that a dry run plans one of
  WatchOptions watch;                    // over them
  int stall_exit_code = kStallExitCode;  // of a run that watch.stall_end, or that of NCCL, ends
};

// Which flags were on the command line, where that matters beside their values.
struct GivenFlags {
  bool allreduce = false;  // else it is the trainer's default
  bool batch = false;      // --batch_size or --global_batch_size
  bool shards = false;
};

// The flags with defaults filled in and checked against each other.
struct TrainFlags {
  std::string kind;  // --trainer: a TrainerKind's name
  // Without model, optimizer and callbacks (trainer_options()). The session of a program that plans
  // is a dry run; allreduce is "" for trainers that combine nothing.
  TrainerOptions trainer;
  AutoFlags automatic;        // of "auto"
  int global_batch_size = 0;  // instead of the batch size per device; 0: not given
  OptimizerFlags optimizer;
  std::optional<EarlyStopOptions> early_stop;
  FileFlags files;
  InspectionFlags inspection;
  RunFlags run;
  GroupFlags group;
  GivenFlags given;
  JsonValue config =
      JsonValue::object();  // what config.json is to hold: flags, and what was chosen by them
  std::string help;         // not empty if --help was given: print it and do nothing else

  bool plans() const { return inspection.plans(); }
  // A copy of the state is held now and then.
  bool saves() const { return !run.directory.empty() || !files.save_checkpoint.empty(); }
  // How the trainer async runs; "" for other trainers.
  std::string async() const;
};

// Makes the options of a trainer: those of the flags, the model, and the optimizer as with_flags()
// changes it. Callbacks are left out. Reads the file of --links now, and throws for what is wrong
// with it. Measures nothing before a choice is to be made.
TrainerOptions trainer_options(const TrainFlags& flags, const ModelFunction& model,
                               const Optimizer& optimizer);

// Adds to flags.config the settings of the program's optimizer that no flag sets: a constant rate
// as a flag, and the rest as chosen.
void add_to_config(TrainFlags& flags, const Optimizer& optimizer);

// Reads --name=value and --name value, with `-` and `_` alike in names; the last of several wins.
// Throws FlagError for unknown flags (with the nearest name), values that cannot be, and flags that
// contradict each other (naming both).
TrainFlags parse_flags(std::span<const char* const> arguments, const FlagDefaults& defaults);

// The same flags on the command line of a program that has others too: added to its parser before
// FlagParser::parse(), read after it.
class TrainFlagSet {
 public:
  // `parser` must outlive it.
  TrainFlagSet(FlagParser& parser, FlagDefaults defaults);
  TrainFlagSet(const TrainFlagSet&) = delete;
  TrainFlagSet& operator=(const TrainFlagSet&) = delete;

  // `batch_size` is the default of --batch_size, if that was not known before. `compares_auto`: the
  // program's own flags name `auto`, so that the flags for its choice have a use.
  TrainFlags read(std::optional<int> batch_size = {}, bool compares_auto = false) const;

 private:
  void read_run(TrainFlags& flags) const;
  JsonValue resolved_config(const TrainFlags& flags) const;

  const FlagParser& parser_;
  FlagDefaults defaults_;
  TrainFlags flags_;  // as the parser sets them
};

}  // namespace belfry
