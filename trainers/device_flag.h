// The value of --devices.
#pragma once
#include <string_view>
#include <vector>

#include "belfry/framework/device_spec.h"

namespace belfry {

// "cpu:4" is a count; a comma list, or an item that begins with "/", names devices. Full names in
// the order given. Throws FlagError, also for duplicates and, unless `dry_run`, for types that this
// build lacks.
std::vector<DeviceSpec> parse_devices(std::string_view text, bool dry_run = false);

}  // namespace belfry
