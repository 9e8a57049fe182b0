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

// LeastLoadedDeviceSetter places variables as they come and counts elements, whatever their dtype.
// Its devices end unbalanced if a large variable comes last. This setter knows all variables
// before: it takes them by bytes, descending (equal ones in their order), and plans each for the
// first device with the fewest bytes, as MXNet does. While the graph is built, it places variables
// by name. The sizes come from a graph that is built only for them:
//   Graph dry;
//   build_model(dry);
//   LargestFirstDeviceSetter setter("/gpu:0", {"/gpu:0", "/gpu:1"}, variable_sizes(dry));
//   DeviceScope on(graph, setter);
//   build_model(graph);
// or from the caller. replicate() takes this setter through its SetterFactory.
class LargestFirstDeviceSetter final : public DeviceSetter {
 public:
  // Throws InvalidArgument if there are no devices, or if two variables have one name.
  LargestFirstDeviceSetter(DeviceSpec worker, std::vector<DeviceSpec> variable_devices,
                           std::span<const VariableSize> variables);

  // Nodes keep a device that inner scopes gave them. Other nodes go to the worker, unless they are
  // variables. A variable without a plan goes to the first device with the fewest bytes so far.
  DeviceSpec place(const Node& node) override;
  // "LargestFirstDeviceSetter-/device:GPU:0": the worker's device.
  std::string str() const override;
  // Elements of the variables that it placed, per device.
  std::map<std::string, std::int64_t> load() const override { return load_; }

  // The plan, by logical name.
  const std::map<std::string, DeviceSpec, std::less<>>& plan() const { return plan_; }
  // Bytes per device, in the order of the devices, of planned and unplanned variables together.
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
