// What a training step updates beside variables and slots.
#pragma once
#include <vector>

#include "belfry/trainers/core/training_graph.h"

namespace belfry {

// Of `all`, the nodes of kUpdateOps, those that the step runs: not those of towers without rows.
// Moving averages move by the samples of each tower, if these differ. In steps that `unscaling`
// skips they do not move.
std::vector<Node*> other_updates(Graph& graph, const TrainingGraph& built,
                                 const std::vector<Node*>& all, const StepNodes& step,
                                 const Unscaling& unscaling);

}  // namespace belfry
