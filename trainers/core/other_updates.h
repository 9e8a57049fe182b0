// What a training step updates besides trained variables and slots.
#pragma once
#include <vector>

#include "belfry/trainers/core/training_nodes.h"

namespace belfry {

// Returns those nodes of `all` (of the collection kUpdateOps) that the step runs. Nodes of towers
// without rows are left out. If towers have different numbers of samples, moving averages weight
// them by these. Steps that `unscaling` skips move no average.
std::vector<Node*> other_updates(Graph& graph, const TrainedLoss& built,
                                 const std::vector<Node*>& all, const StepNodes& step,
                                 const Unscaling& unscaling);

}  // namespace belfry
