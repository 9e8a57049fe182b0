// Resolves flags of training: defaults that depend on other flags, and contradictions.
#pragma once
#include "belfry/trainers/program/flags.h"

namespace belfry {

// Chooses trainer, strategy and size of buckets if no flag does. Ignores, with a warning, flags
// that have no use with one device or one process. Throws FlagError for flags that contradict each
// other. `compares_auto`: the program's own flags list `auto` among the strategies to compare.
void resolve_flags(TrainFlags& flags, const FlagParser& parser, bool compares_auto);

// Sets `processes`. Throws FlagError for --processes without a dry run, or if a launcher has
// started another number.
void count_processes(TrainFlags& flags, const FlagParser& parser);

// Sets the batch size of each device to its part of --global_batch_size.
void divide_global_batch(TrainFlags& flags, const FlagParser& parser);

}  // namespace belfry
