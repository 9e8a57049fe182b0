// In each step processes tell each other losses, metrics and requests to stop.
#pragma once
#include "belfry/trainers/core/training_nodes.h"

namespace belfry {

// For one of several processes: fills StepNodes::of_all_towers and StepNodes::request of each
// step.
void add_values_of_all(Graph& graph, TrainingGraph& built);

}  // namespace belfry
