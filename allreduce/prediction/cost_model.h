// Predicts how long a plan takes on a machine. It goes through the launches, so one rule predicts
// every strategy, users' own too.
#pragma once
#include <cstdint>
#include <span>

#include "belfry/allreduce/prediction/machine.h"
#include "belfry/framework/plan/plan.h"

namespace belfry {

// Whether a plan is a whole step, or a part of one. A whole step wakes as many workers as are of
// use to it. A part finds all workers awake, however little it is: the training step around it pays
// for that.
enum class PlanExtent : std::uint8_t { kWholeStep, kPartOfStep };

// Seconds of one run. `devices` are those of the plan's session, in its order.
//
// Launches run as in a step. Each worker goes through its own launches in the global order, when
// all that they depend on is done. On a machine without workers, each device does. Idle workers
// help with shared launches. A launch costs its overhead, and its bytes at the bandwidth for all
// the bytes of the step. Bytes that another worker wrote last cost more. A copy to another device
// runs on the link between the two, or on its bus, beside all else. A collective over several
// memories costs an exchange of fragments. Every device takes its fragment from each other, adds,
// and takes the others' sums, at the price of a launch for each fragment that it takes. Collectives
// take turns.
//
// Throws NotFoundError for a device that the machine lacks.
double predict_seconds(const Plan& plan, std::span<const DeviceSpec> devices,
                       const MachineDescription& machine,
                       PlanExtent extent = PlanExtent::kPartOfStep);

}  // namespace belfry
