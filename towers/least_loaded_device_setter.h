// Spreads variables over devices: each new one goes where the fewest elements are.
#pragma once
#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "belfry/framework/graph/scopes.h"

namespace belfry {

// Variables go to the first of `variable_devices` with the smallest load, everything else to
// `worker`. A device's load is the number of elements (not bytes) of all variables that this setter
// has placed there. A node keeps a device set by inner scopes, and adds no load. So do variables
// that are placed with others (ColocateWith), such as optimizer slots. The semantics are those of
// tensorpack's class of this name, except that tensorpack counts resource variables as compute;
// here the setter spreads every variable. Shapes of variables are always known here.
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
