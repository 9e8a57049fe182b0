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

// The rows of flags that inspect, and of those about several processes and runs that hang. Headings
// are added by training_options().
Options<TrainFlags> inspection_options(const FlagDefaults& defaults);
Options<TrainFlags> process_options();

}  // namespace belfry
