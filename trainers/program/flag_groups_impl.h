// The flags of training, a function for each group of --help.
#pragma once
#include "belfry/trainers/flags/device_flag.h"
#include "belfry/trainers/program/flags.h"

namespace belfry {

// The variables for add_device_flags().
DeviceFlags device_flags(TrainFlags& flags);

// Each declares flags with unit, text and default, and binds them to their fields in `flags`.
void add_devices_and_gradients(FlagParser& parser, TrainFlags& flags);
void add_training(FlagParser& parser, TrainFlags& flags, const FlagDefaults& defaults);
void add_data(FlagParser& parser, TrainFlags& flags, const FlagDefaults& defaults);
void add_overwrite(FlagParser& parser, FileFlags& files);
void add_inspection(FlagParser& parser, TrainFlags& flags, const FlagDefaults& defaults);
void add_execution(FlagParser& parser, TrainFlags& flags);

}  // namespace belfry
