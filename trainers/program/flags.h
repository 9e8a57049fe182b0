// The command line of every training program.
#pragma once
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "belfry/framework/graph/device_spec.h"
#include "belfry/ops/precision.h"
#include "belfry/trainers/data/batches.h"
#include "belfry/trainers/program/auto_flags.h"
#include "belfry/trainers/util/flag_values.h"

namespace belfry {

class FlagParser;
struct RawFlags;

// What a program's recipe says.
struct FlagDefaults {
  std::string program;  // for --help
  int batch_size = 32;
  int epochs = 1;
  bool reads_files = true;  // false: there is no --data_dir
  // Of benchmarks: they choose data, steps and batch size themselves, so that there are no flags of
  // epochs, files and single nodes.
  bool benchmark = false;
};

// The flags with defaults filled in and checked against each other.
struct TrainFlags {
  std::vector<DeviceSpec> devices;  // full names, no two equal
  int logical_gpus = 1;             // per physical GPU
  bool deterministic = false;       // as in SessionOptions
  std::string algorithms;           // a file; "" for none
  std::string trainer;
  std::string allreduce;           // a spec or "auto"; "" for trainers that combine nothing
  AutoFlags automatic;             // of "auto"
  bool parameters_on_cpu = false;  // of trainers whose variables exist once; else they are spread
  int gradient_repacking = 0;
  double bucket_mb = 0;  // MiB
  double nccl_timeout_s = 600;
  bool allreduce_given = false, bucket_mb_given = false;
  bool fuse_updates = true, share_replicas = true;
  int small_tensors_kb = 0;
  std::string async;    // "ordered" or "free"; "" for trainers that do not take it
  int batch_size = 32;  // per tower, on average
  Uneven uneven = Uneven::kDrop;
  std::vector<double> tower_weights;  // one per device; none: equal
  int epochs = 1;
  std::int64_t max_steps = 0;  // 0: no limit
  std::uint64_t seed = 1;
  Precision precision = Precision::kF32;
  std::optional<double> learning_rate;  // instead of the recipe's
  std::string data_dir;
  int threads = 0;  // 0: one per usable core
  bool log_device_placement = false;
  bool dry_run = false;
  std::string explain;        // a node; "" for none
  int check_equivalence = 0;  // steps in every mode; 0: train instead
  std::string trace_file, save_checkpoint, restore_checkpoint, json;
  bool overwrite = false;  // another model's checkpoint at save_checkpoint
  std::string help;        // not empty if --help was given: print it and do nothing else

  // Nothing runs, and GPUs of `devices` need not exist.
  bool plans() const { return dry_run || !explain.empty(); }
};

// Reads --name=value and --name value, with `-` and `_` alike in names; the last of several wins.
// Throws FlagError for unknown flags (with the nearest name), values that cannot be, and flags that
// contradict each other (naming both).
TrainFlags parse_flags(std::span<const char* const> arguments, const FlagDefaults& defaults);

// The same flags on the command line of a program that has others too: added to its parser before
// FlagParser::parse(), read after it.
class TrainFlagSet {
 public:
  TrainFlagSet(FlagParser& parser, FlagDefaults defaults);
  ~TrainFlagSet();
  TrainFlagSet(const TrainFlagSet&) = delete;
  TrainFlagSet& operator=(const TrainFlagSet&) = delete;

  // `batch_size` is the default of --batch_size, if that was not known before. `compares_auto`: the
  // program's own flags name `auto`, so that the flags for its choice have a use.
  TrainFlags read(std::optional<int> batch_size = {}, bool compares_auto = false) const;

 private:
  FlagDefaults defaults_;
  std::unique_ptr<RawFlags> raw_;
};

}  // namespace belfry
