// What flags.cc and flag_checks.cc share.
#pragma once
#include <string>

#include "belfry/trainers/core/auto_choice.h"
#include "belfry/trainers/program/device_flag.h"
#include "belfry/trainers/program/flags.h"

namespace belfry {

// What the user typed. Numbers stay text, because CLI11 accepts -1 as unsigned and lets large ones
// wrap around.
struct RawFlags {
  RawDevices devices;
  FlagValue trainer, allreduce, parameter_device, async;
  FlagValue fuse_updates, share_replicas, bucket_mb, nccl_timeout_s;
  FlagValue repacking, small_tensors_kb, batch_size, epochs, max_steps, threads, seed,
      learning_rate;
  FlagValue uneven, tower_weights, precision, check_equivalence;
  std::string data_dir, json, explain, trace_file, save_checkpoint, restore_checkpoint;
  bool log_device_placement = false, dry_run = false, overwrite = false;
  AutoFlags automatic;
};

// Fills in trainer, allreduce and bucket_mb, and refuses flags that contradict each other.
// `compares_auto`: a program's own flags have `auto` among the strategies to compare.
void check_flags(TrainFlags& flags, RawFlags raw, bool compares_auto);

}  // namespace belfry
