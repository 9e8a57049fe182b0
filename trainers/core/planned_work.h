// What one device does in a planned step, for predictions of that step on other machines.
#pragma once
#include <optional>

#include "belfry/allreduce/simulation/workload.h"

namespace belfry {

class BuiltTraining;

// The launches of the first tower's device. A gradient is a tensor of the backward pass that
// another launch takes: a sum, a test for finite values, an update. All that depends on one follows
// the sums. Nothing if a step runs several plans: for several batches, or for towers that run free.
std::optional<TrainingWorkload> planned_work(BuiltTraining& built);

}  // namespace belfry
