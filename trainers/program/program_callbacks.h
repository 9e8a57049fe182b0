// The callbacks of a training program.
#pragma once
#include <optional>

#include "belfry/trainers/program/flags.h"
#include "belfry/trainers/program/train.h"
#include "belfry/trainers/program/training_run.h"
#include "belfry/trainers/util/console.h"

namespace belfry {

// Adds all callbacks to `options`. `peak`: the measured peak of the devices, for Progress.
void add_callbacks(TrainerOptions& options, const TrainFlags& flags, const Recipe& recipe,
                   Console& console, TrainingRun& run, std::optional<double> peak);

}  // namespace belfry
