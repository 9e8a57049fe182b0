// The callbacks of a training program.
#pragma once
#include <memory>
#include <optional>
#include <string>

#include "belfry/trainers/program/flags.h"
#include "belfry/trainers/program/report_files.h"
#include "belfry/trainers/program/train.h"
#include "belfry/trainers/program/training_run.h"
#include "belfry/trainers/runs/replay_check.h"
#include "belfry/trainers/util/console.h"

namespace belfry {

// Adds all callbacks of the program `name` to `options`. `peak`: the measured peak of the devices,
// for Progress. `files` must outlive them. Returns that of --replay, or null.
std::shared_ptr<const ReplayCheck> add_callbacks(TrainerOptions& options, const std::string& name,
                                                 const TrainFlags& flags, const Recipe& recipe,
                                                 const ReportFiles& files, Console& console,
                                                 TrainingRun& run, std::optional<double> peak);

}  // namespace belfry
