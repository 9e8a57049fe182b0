// What flags of training say together.
#pragma once
#include "belfry/trainers/program/flags.h"

namespace belfry {

// Fills in kind, allreduce and bucket_mb, and refuses flags that contradict each other.
// `compares_auto`: a program's own flags have `auto` among the strategies to compare.
void check_flags(TrainFlags& flags, const FlagParser& parser, bool compares_auto);

// Fills in `processes`. Throws FlagError for --processes beside a run, or beside a launcher that
// has started another number.
void count_processes(TrainFlags& flags, const FlagParser& parser);

// Of --global_batch_size: the batch size of each device.
void divide_global_batch(TrainFlags& flags, const FlagParser& parser);

}  // namespace belfry
