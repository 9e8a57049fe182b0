// Builds the steps of a training graph whose towers exist.
#pragma once
#include <map>
#include <span>
#include <vector>

#include "belfry/trainers/core/training_graph.h"

namespace belfry {

// Adds a step per form of batches to `built`. `separate`: by bucket of lengths, the gradients of
// each tower's own loss; if empty, those of all towers are differentiated together. Differentiation
// starts at `initial` (loss_scaling.h). If that is not 1, the sum over towers is already the mean.
// Of several losses, the steps of the first run the nodes of kUpdateOps.
void add_steps(Graph& graph, TrainedLoss& built, const TrainingGraphOptions& options,
               const std::map<std::size_t, GradientRows>& separate, double initial, bool first);

// What a step runs: the update, and nodes that run with it.
Node& train_step(Graph& graph, Node& update, const std::vector<Node*>& others);

}  // namespace belfry
