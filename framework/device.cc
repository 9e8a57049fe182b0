#include "belfry/framework/device.h"

#include <sched.h>

#include "belfry/framework/session.h"

namespace belfry {

std::vector<std::unique_ptr<Device>> make_devices(const SessionOptions& options) {
  int cpus = 1;
  for (const auto& [type, count] : options.device_count) {
    require(type == "CPU", "device_count: this build has no devices of type '", type,
            "'; it has CPU devices");
    require(count >= 1 && count <= kMostDevices, "device_count: ", count,
            " CPU devices were asked for; 1 to ", kMostDevices, " are possible");
    cpus = count;
  }
  std::vector<std::int64_t> limits(static_cast<std::size_t>(cpus), 0);
  for (const auto& [name, bytes] : options.memory_limit) {
    const DeviceSpec spec(name);
    bool found = false;
    for (int i = 0; i < cpus; ++i) {
      if (!spec.matches(DeviceSpec::local("CPU", i))) continue;
      limits[static_cast<std::size_t>(i)] = bytes;
      found = true;
    }
    require(found && bytes > 0, "memory_limit: '", name, "' with ", bytes,
            " bytes names no device or no memory");
  }
  std::vector<std::unique_ptr<Device>> devices;
  for (int i = 0; i < cpus; ++i)
    devices.push_back(
        std::make_unique<Device>(DeviceSpec::local("CPU", i), limits[static_cast<std::size_t>(i)]));
  return devices;
}

std::string list_devices(const std::vector<std::unique_ptr<Device>>& devices) {
  std::vector<std::string> names;
  for (const auto& device : devices) names.push_back(device->spec.str());
  return cat("[ ", join(names), " ]");
}

int usable_cores() {
  cpu_set_t set;
  CPU_ZERO(&set);
  if (sched_getaffinity(0, sizeof set, &set) != 0) return 1;
  return CPU_COUNT(&set);
}

}  // namespace belfry
