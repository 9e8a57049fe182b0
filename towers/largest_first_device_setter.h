// Spreads variables over devices by bytes, the largest first.
#pragma once
#include <cstdint>
#include <map>
#include <span>
#include <string>
#include <vector>

#include "belfry/framework/graph/scopes.h"
#include "belfry/towers/balance.h"

namespace belfry {

// Placing variables as they come, like LeastLoadedDeviceSetter, ends unbalanced when a large one
// comes last, and counts elements of every dtype alike. This setter takes two passes instead. The
// first plans. Given all variables, it takes them by bytes, descending (equal ones in their order).
// It gives each to the first device with the fewest bytes, as MXNet does. The second places by name
// while the graph is built. The sizes come from a graph built before for this alone:
//   Graph dry;
//   build_model(dry);
//   LargestFirstDeviceSetter setter("/gpu:0", {"/gpu:0", "/gpu:1"}, variable_sizes(dry));
//   DeviceScope on(graph, setter);
//   build_model(graph);
// or are given by hand. replicate() takes it through its SetterFactory.
class LargestFirstDeviceSetter final : public DeviceSetter {
 public:
  // Throws InvalidArgument if there are no devices, or if two variables have one name.
  LargestFirstDeviceSetter(DeviceSpec worker, std::vector<DeviceSpec> variable_devices,
                           std::span<const VariableSize> variables);

  // Nodes that inner scopes gave a device keep it; others that are no variables go to the worker. A
  // variable that was not planned goes to the first device with the fewest bytes so far.
  DeviceSpec place(const Node& node) override;
  // "LargestFirstDeviceSetter-/device:GPU:0": the worker's device.
  std::string str() const override;
  // Elements of the variables that it placed, per device.
  std::map<std::string, std::int64_t> load() const override { return load_; }

  // The plan, by logical name.
  const std::map<std::string, DeviceSpec, std::less<>>& plan() const { return plan_; }
  // Bytes per device, in the order of the devices: those planned, and those that came on top.
  const std::vector<std::int64_t>& bytes() const { return bytes_; }

 private:
  const DeviceSpec& next_home(std::int64_t bytes);

  DeviceSpec worker_;
  std::vector<DeviceSpec> devices_;
  std::vector<std::int64_t> bytes_;
  std::map<std::string, DeviceSpec, std::less<>> plan_;
  std::map<std::string, std::int64_t> load_;
};

}  // namespace belfry
