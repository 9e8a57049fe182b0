// Lists of devices as users write them, and the devices that sessions need for them.
#pragma once
#include <map>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "belfry/framework/graph/device_spec.h"

namespace belfry {

// "cpu:4" and "gpu:8" are counts. A comma list, or an item that begins with "/", names devices,
// which need not exist. Returns full names in the given order. Throws FlagError "<name>: ...", also
// for duplicates.
std::vector<DeviceSpec> parse_devices(std::string_view text, std::string_view name = "devices");

bool any_gpu(std::span<const DeviceSpec> devices);

// How many devices of each type must exist so that all of `devices` exist: for SessionOptions.
// Throws InvalidArgument for a device without type or index.
std::map<std::string, int> device_count(std::span<const DeviceSpec> devices);

// "CPU:0 CPU:1", for people.
std::string short_names(std::span<const DeviceSpec> devices);

}  // namespace belfry
