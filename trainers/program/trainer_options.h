// From the command line to what a trainer is made of.
#pragma once
#include "belfry/trainers/core/trainer.h"
#include "belfry/trainers/program/flags.h"

namespace belfry {

// What the flags say about training, one member per flag; without callbacks. --learning_rate
// replaces the optimizer's rate. --dry_run and --explain make a dry run. Reads the file of --links
// now, and throws for what is wrong with it; measures nothing before a choice is to be made.
TrainerOptions trainer_options(const TrainFlags& flags, const Model& model,
                               const Optimizer& optimizer);

}  // namespace belfry
