// Spreads variables over devices: each new one goes where the fewest elements are.
#pragma once
#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "belfry/framework/graph/scopes.h"

namespace belfry {

// Variables go to the first of `variable_devices` with the smallest load, everything else to
// `worker`. A load is the number of elements (not bytes) of the variables placed there by this
// setter, which lives as long as the setter. A node that inner scopes gave a device keeps it as it
// is, and adds no load; so do variables made beside others (ColocateWith), as optimizer slots are.
// Semantics of tensorpack's class of this name, for every variable (there, resource variables count
// as compute); shapes of variables are always known here.
class LeastLoadedDeviceSetter final : public DeviceSetter {
 public:
  // Throws InvalidArgument if there are no devices for variables.
  LeastLoadedDeviceSetter(DeviceSpec worker, std::vector<DeviceSpec> variable_devices);

  DeviceSpec place(const Node& node) override;
  // "LeastLoadedDeviceSetter-/device:GPU:0": the worker's device (upstream, as it was written).
  std::string str() const override;

  // loads() by device.
  std::map<std::string, std::int64_t> load() const override;

  // Elements per device, in the order of the devices.
  const std::vector<std::int64_t>& loads() const { return loads_; }

 private:
  DeviceSpec worker_;
  std::vector<DeviceSpec> devices_;
  std::vector<std::int64_t> loads_;
};

}  // namespace belfry
