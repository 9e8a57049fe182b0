// Machines for predictions. With these, tests need not measure the machine on which they run.
#pragma once
#include "belfry/allreduce/prediction/machine.h"

namespace belfry {

// `type` is "CPU" or "GPU".
inline std::vector<DeviceSpec> local_devices(const char* type, int count) {
  std::vector<DeviceSpec> devices;
  for (int i = 0; i < count; ++i) devices.push_back(DeviceSpec::local(type, i));
  return devices;
}

// `devices` logical CPU devices in one memory, on two workers. One worker touches 10 bytes per ns,
// both together 16.
inline MachineDescription machine_of_workers(int devices) {
  return {.devices = local_devices("CPU", devices),
          .workers = 2,
          .run_us = 1,
          .launch_us = 0.5,
          .wait_us = 0.25,
          .share_us = 0.125,
          .bandwidth = {{1, 10, 16}}};
}

// `devices` GPUs, each with a link to every other one. Kernels touch `gbps` bytes per ns.
inline MachineDescription machine_of_links(int devices, const Link& link, double gbps = 500) {
  const auto count = static_cast<std::size_t>(devices);
  return {.devices = local_devices("GPU", devices),
          .launch_us = 5,
          .bandwidth = {{1, gbps, gbps}},
          .links = std::vector(count, std::vector<Link>(count, link))};
}

}  // namespace belfry
