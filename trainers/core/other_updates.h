// What a training step updates beside variables and slots.
#pragma once
#include <vector>

#include "belfry/trainers/core/training_nodes.h"

namespace belfry {

// Returns those nodes of `all` (of the collection kUpdateOps) that the step runs. It runs none of
// towers without rows. Moving averages move by the samples of each tower, if these differ, and do
// not move in steps that `unscaling` skips.
std::vector<Node*> other_updates(Graph& graph, const TrainingGraph& built,
                                 const std::vector<Node*>& all, const StepNodes& step,
                                 const Unscaling& unscaling);

}  // namespace belfry
