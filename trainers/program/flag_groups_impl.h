// The table of the flags of training.
#pragma once
#include "belfry/trainers/flags/device_flag.h"
#include "belfry/trainers/program/flags.h"

namespace belfry {

// The variables for device_options().
DeviceFlags device_flags(TrainFlags& flags);

// A row for each flag, in the order of --help. Throws InvalidArgument for an option of the recipe,
// or of a trainer, that cannot be.
Options<TrainFlags> training_options(const FlagDefaults& defaults);

}  // namespace belfry
