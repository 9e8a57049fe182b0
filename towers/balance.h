// How evenly variables are spread over devices.
#pragma once
#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "belfry/framework/graph/graph.h"

namespace belfry {

struct BalanceReport {
  struct Device {
    DeviceSpec device;  // as requested; empty: the placer decides
    std::int64_t bytes = 0;
    int variables = 0;
  };
  std::vector<Device> devices;  // numeric order: GPU:2 before GPU:10
  std::int64_t bytes = 0;       // in all
  int variables = 0;
  double imbalance = 1;  // largest over mean bytes per device; 1 if there are no bytes

  // "5 variables, 1040 bytes on 2 devices, imbalance 1.08" and a line per device
  // "  /device:CPU:0: 560 bytes in 3 variables".
  std::string str() const;
};

// Reports all variables of a graph, replicas too, by the devices that scopes and setters gave them.
// The report lists all `devices`, and the mean counts them, even if they hold nothing.
BalanceReport balance_report(const Graph& graph, std::span<const DeviceSpec> devices = {});

}  // namespace belfry
