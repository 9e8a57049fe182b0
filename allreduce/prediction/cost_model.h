// Predicts how long a plan takes on a machine. It simulates the launches, so one rule predicts
// every strategy, including users' own.
#pragma once
#include <cstdint>
#include <span>

#include "belfry/allreduce/prediction/machine.h"
#include "belfry/framework/plan/plan.h"

namespace belfry {

// Whether a plan is a whole step or a part of one. A whole step wakes as many workers as it can
// use. A part, however small, finds all workers awake, because the training step around it has paid
// for that.
enum class PlanExtent : std::uint8_t { kWholeStep, kPartOfStep };

// Seconds of one run. `devices` are those of the plan's session, in its order.
//
// Launches run as in a step. Each worker runs its own launches in the global order, once everything
// that they depend on is done. On a machine without workers, each device does. Idle workers help
// with shared launches. A launch costs its overhead, plus its bytes at the bandwidth for all the
// bytes of the step. Bytes last written by another worker cost more. A copy to another device runs
// on the link between the two, or on its bus, in parallel with everything else. A collective over
// several memories costs an exchange of fragments. Every device fetches its fragment from each of
// the others, adds, and fetches the others' sums, at the price of a launch per fetched fragment.
// Collectives take turns.
//
// Throws NotFoundError for a device that the machine lacks.
double predict_seconds(const Plan& plan, std::span<const DeviceSpec> devices,
                       const MachineDescription& machine,
                       PlanExtent extent = PlanExtent::kPartOfStep);

}  // namespace belfry
