// In each step the processes exchange losses, metrics and requests to stop.
#pragma once
#include <string>

#include "belfry/trainers/core/training_nodes.h"

namespace belfry {

class Processes;

// For one of several processes: fills StepNodes::of_all_towers and StepNodes::request of each
// step.
void add_values_of_all(Graph& graph, TrainedLoss& built);

// Returns the text of the first process, by rank, whose text is not "". All processes call it after
// the same step. A lone process (null) gets its own text.
std::string of_any_process(Processes* processes, const std::string& own);

}  // namespace belfry
