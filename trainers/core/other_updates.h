// What a training step updates beside variables and slots.
#pragma once
#include <vector>

#include "belfry/trainers/core/training_graph.h"

namespace belfry {

// Of `all`, the nodes of kUpdateOps, those that a form of steps runs: not those of towers without
// rows; and with moving averages that move by the form's samples, if these differ, and not at all
// in steps that `unscaling` skips.
std::vector<Node*> other_updates(Graph& graph, const TrainingGraph& built,
                                 const std::vector<Node*>& all, const TrainingForm& form,
                                 const Unscaling& unscaling);

}  // namespace belfry
