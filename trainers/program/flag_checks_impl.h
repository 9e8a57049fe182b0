// What flags of training say together.
#pragma once
#include "belfry/trainers/program/flags.h"

namespace belfry {

// Fills in kind, allreduce and bucket_mb, and refuses flags that contradict each other.
// `compares_auto`: a program's own flags have `auto` among the strategies to compare.
void check_flags(TrainFlags& flags, const FlagParser& parser, bool compares_auto);

}  // namespace belfry
