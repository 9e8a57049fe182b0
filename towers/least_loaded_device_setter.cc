#include "belfry/towers/least_loaded_device_setter.h"

#include <algorithm>

#include "belfry/framework/base/require.h"

namespace belfry {

LeastLoadedDeviceSetter::LeastLoadedDeviceSetter(DeviceSpec worker,
                                                 std::vector<DeviceSpec> variable_devices)
    : worker_(std::move(worker)), devices_(std::move(variable_devices)), loads_(devices_.size()) {
  require(!devices_.empty(), str(), ": name at least one device for variables");
}

DeviceSpec LeastLoadedDeviceSetter::place(const Node& node) {
  if (!node.device().empty()) return node.device();
  if (!node.is_variable()) return worker_;
  const auto least = std::ranges::min_element(loads_);  // the first of several
  *least += node.output_type(0).shape.elements();
  return devices_[static_cast<std::size_t>(least - loads_.begin())];
}

std::map<std::string, std::int64_t> LeastLoadedDeviceSetter::load() const {
  std::map<std::string, std::int64_t> result;
  for (std::size_t i = 0; i < devices_.size(); ++i) result[devices_[i].str()] += loads_[i];
  return result;
}

std::string LeastLoadedDeviceSetter::str() const {
  return "LeastLoadedDeviceSetter-" + worker_.str();
}

}  // namespace belfry
