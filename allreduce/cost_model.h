// How long a plan takes on a machine: by going through its launches, so that every strategy, users'
// own too, is predicted by one rule.
#pragma once
#include <span>

#include "belfry/allreduce/machine.h"
#include "belfry/framework/plan.h"

namespace belfry {

// Seconds of one run. `devices` are those of the plan's session, in its order.
//
// Launches run as in a step: each worker (or, on a machine without workers, each device) goes
// through its own in the global order, when all that they depend on is done; idle workers help with
// launches that are shared. All workers that have something to do are awake, however little it is:
// a plan of reductions stands for a training step, which pays for that. A launch costs its overhead
// and the bytes that it touches at the bandwidth for all the bytes of the step. A copy to another
// device runs on the link between the two, or on its bus, beside all else. A collective over
// several memories costs what an exchange of fragments does: every device takes its fragment from
// each other, adds, and takes the others' sums, at the price of a launch for each that it takes;
// collectives take turns.
//
// Throws NotFound for a device that the machine lacks.
double predict_seconds(const Plan& plan, std::span<const DeviceSpec> devices,
                       const Machine& machine);

}  // namespace belfry
