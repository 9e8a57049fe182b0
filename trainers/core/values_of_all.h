// In each step processes tell each other losses, metrics and requests to stop.
#pragma once
#include <string>

#include "belfry/trainers/core/training_nodes.h"

namespace belfry {

class Processes;

// For one of several processes: fills StepNodes::of_all_towers and StepNodes::request of each
// step.
void add_values_of_all(Graph& graph, TrainingGraph& built);

// What any process says, the first by rank that is not ""; all call it after the same step. A
// process that is alone, without `processes`, has only its own.
std::string of_any_process(Processes* processes, const std::string& own);

}  // namespace belfry
