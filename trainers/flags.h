// The command line of every training program.
#pragma once
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "belfry/framework/device_spec.h"
#include "belfry/trainers/flag_values.h"

namespace belfry {

// What a program's recipe says.
struct FlagDefaults {
  std::string program;  // for --help
  int batch_size = 32;
  int epochs = 1;
  bool reads_files = true;  // false: there is no --data_dir
};

// The flags with defaults filled in and checked against each other.
struct TrainFlags {
  std::vector<DeviceSpec> devices;  // full names, no two equal
  std::string trainer;
  std::string allreduce;  // "" for trainers that combine nothing
  int gradient_repacking = 0;
  std::string async;    // "ordered" or "free"; "" for trainers that do not take it
  int batch_size = 32;  // per tower
  int epochs = 1;
  std::int64_t max_steps = 0;  // 0: no limit
  std::uint64_t seed = 1;
  std::optional<double> learning_rate;  // instead of the recipe's
  std::string data_dir;
  int threads = 0;  // 0: one per usable core
  bool log_device_placement = false;
  bool dry_run = false;  // `devices` may then hold GPUs that do not exist
  std::string explain;   // a node; "" for none
  std::string trace_file, save_checkpoint, restore_checkpoint, json;
  std::string help;  // not empty if --help was given: print it and do nothing else
};

// Reads --name=value and --name value, with `-` and `_` alike in names; the last of several wins.
// Throws FlagError for unknown flags (with the nearest name), values that cannot be, and flags that
// contradict each other (naming both).
TrainFlags parse_flags(std::span<const char* const> arguments, const FlagDefaults& defaults);

}  // namespace belfry
