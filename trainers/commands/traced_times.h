// Times of launches, from a trace of the program whose plan is simulated.
#pragma once
#include <string_view>

#include "belfry/allreduce/simulation/workload.h"

namespace belfry {

// Sets the time of each launch of a plan from a trace file of one device (framework/trace/trace.h),
// and orders launches by their ends. Shards run beside each other, and a device may wait between
// launches. So a launch counts from the end of the one that ended before it: together they take as
// long as the traced step. Throws InvalidArgument if the trace is of several devices, or lacks a
// launch.
void take_traced_times(std::string_view trace, TrainingWorkload& work);

}  // namespace belfry
