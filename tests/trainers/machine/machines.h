// Machines for `auto` to choose by, so that tests need not measure the one that they run on.
#pragma once
#include "belfry/allreduce/prediction/machine.h"
#include "belfry/framework/base/text.h"
#include "belfry/trainers/program/device_flag.h"

namespace belfry {

// `devices` logical CPU devices in one memory, on two workers.
inline MachineDescription machine_of_workers(int devices) {
  return {.devices = parse_devices(cat("cpu:", devices)),
          .workers = 2,
          .run_us = 1,
          .launch_us = 0.5,
          .wait_us = 0.25,
          .share_us = 0.125,
          .bandwidth = {{1, 10, 16}}};
}

// `devices` GPUs, each with a link to each other one.
inline MachineDescription machine_of_links(int devices, const Link& link) {
  const auto count = static_cast<std::size_t>(devices);
  return {.devices = parse_devices(cat("gpu:", devices)),
          .launch_us = 5,
          .bandwidth = {{1, 500, 500}},
          .links = std::vector(count, std::vector<Link>(count, link))};
}

}  // namespace belfry
