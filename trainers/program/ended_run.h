// What a program says of a run that a signal has stopped, or that had ended before.
#pragma once
#include <string>

#include "belfry/framework/base/json.h"
#include "belfry/trainers/core/trainer.h"
#include "belfry/trainers/program/flags.h"
#include "belfry/trainers/program/training_run.h"
#include "belfry/trainers/util/console.h"

namespace belfry {

// Why the run stopped before its last step, what was saved, and how to resume it.
std::string why_it_stopped(const TrainFlags& flags, const Trainer& trainer, const TrainingRun& run);

// Prints the results of a run that had ended before, and what trains it longer.
void repeat_results(const JsonValue& results, const TrainFlags& flags, const Trainer& trainer,
                    Console& console);

}  // namespace belfry
