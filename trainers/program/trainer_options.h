// From the command line to what a trainer is made of.
#pragma once
#include "belfry/trainers/core/trainer.h"
#include "belfry/trainers/program/flags.h"

namespace belfry {

// The options of the flags with model and optimizer; without callbacks. --learning_rate replaces
// the optimizer's rate, --lr_schedule and --warmup_steps make it change; a FlagError if a schedule
// is to replace that of the optimizer. With --moving_average it keeps averages. Reads the file of
// --links now, and throws for what is wrong with it; measures nothing before a choice is to be
// made.
TrainerOptions trainer_options(const TrainFlags& flags, const Model& model,
                               const Optimizer& optimizer);

}  // namespace belfry
