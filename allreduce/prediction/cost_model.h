// How long a plan takes on a machine: by going through its launches, so that every strategy, users'
// own too, is predicted by one rule.
#pragma once
#include <cstdint>
#include <span>

#include "belfry/allreduce/prediction/machine.h"
#include "belfry/framework/plan/plan.h"

namespace belfry {

// Whether a plan is a whole step. Such a plan wakes as many workers as are of use to it. As a
// part, it finds all workers awake, however little it is: a plan of reductions stands for the
// training step that pays for that.
enum class PlanExtent : std::uint8_t { kWholeStep, kPartOfStep };

// Seconds of one run. `devices` are those of the plan's session, in its order.
//
// Launches run as in a step. Each worker goes through its own in the global order, when all that
// they depend on is done; on a machine without workers, each device does; idle workers help with
// launches that are shared. A launch costs its overhead, and the bytes that it touches at the
// bandwidth for all the bytes of the step. Those that another worker wrote last cost more. A copy
// to another device runs on the link between the two, or on its bus, beside all else. A collective
// over several memories costs what an exchange of fragments does. Every device takes its fragment
// from each other, adds, and takes the others' sums, at the price of a launch for each that it
// takes; collectives take turns.
//
// Throws NotFound for a device that the machine lacks.
double predict_seconds(const Plan& plan, std::span<const DeviceSpec> devices,
                       const MachineDescription& machine,
                       PlanExtent extent = PlanExtent::kPartOfStep);

}  // namespace belfry
