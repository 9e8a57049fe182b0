#include "belfry/towers/largest_first_device_setter.h"

#include <algorithm>

#include "belfry/framework/base/require.h"

namespace belfry {

LargestFirstDeviceSetter::LargestFirstDeviceSetter(DeviceSpec worker,
                                                   std::vector<DeviceSpec> variable_devices,
                                                   std::span<const VariableSize> variables)
    : worker_(std::move(worker)), devices_(std::move(variable_devices)), bytes_(devices_.size()) {
  require(!devices_.empty(), str(), ": name at least one device for variables");
  std::vector<VariableSize> sorted(variables.begin(), variables.end());
  std::ranges::stable_sort(sorted, std::greater(), &VariableSize::bytes);
  for (const VariableSize& v : sorted)
    require(plan_.emplace(v.name, next_home(v.bytes)).second, str(), ": variable '", v.name,
            "' is to be planned twice; names must differ");
}

const DeviceSpec& LargestFirstDeviceSetter::next_home(std::int64_t bytes) {
  const auto least = std::ranges::min_element(bytes_);  // the first of several
  *least += bytes;
  return devices_[static_cast<std::size_t>(least - bytes_.begin())];
}

DeviceSpec LargestFirstDeviceSetter::place(const Node& node) {
  if (!node.device().empty()) return node.device();
  if (!node.is_variable()) return worker_;
  const TensorType& type = node.output_type(0);
  const auto planned = plan_.find(node.logical_name());
  const DeviceSpec home =
      planned != plan_.end()
          ? planned->second
          : next_home(type.shape.elements() * static_cast<std::int64_t>(size_of(type.dtype)));
  load_[home.str()] += type.shape.elements();
  return home;
}

std::string LargestFirstDeviceSetter::str() const {
  return "LargestFirstDeviceSetter-" + worker_.str();
}

}  // namespace belfry
