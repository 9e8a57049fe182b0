#include "belfry/towers/variable_getters.h"

#include <algorithm>

#include "belfry/framework/base/require.h"
#include "belfry/framework/base/text.h"

namespace belfry {
namespace {

// Replaces kGlobalVariables by kLocalVariables in the collections of a variable. No collections
// mean {kGlobalVariables}.
void replace_global_by_local(VariableRequest& request) {
  std::vector<std::string>& collections = request.options.collections;
  if (collections.empty()) collections.emplace_back(kGlobalVariables);
  require(std::erase(collections, kGlobalVariables) > 0, "variable '", request.name,
          "' cannot be made local: it is listed in [", join(collections), "], but not in '",
          kGlobalVariables, "'; add that collection, or leave all out");
  if (std::ranges::find(collections, kLocalVariables) == collections.end())
    collections.emplace_back(kLocalVariables);
}

}  // namespace

OverrideCachingDevice::OverrideCachingDevice(std::vector<DeviceSpec> devices,
                                             DeviceSpec device_for_small_variables,
                                             std::int64_t small_variable_size)
    : devices_(std::move(devices)),
      small_device_(std::move(device_for_small_variables)),
      small_size_(small_variable_size),
      loads_(devices_.size()) {
  require(!devices_.empty(), "OverrideCachingDevice: name at least one device to cache on");
}

void OverrideCachingDevice::request(VariableRequest& request) {
  if (!request.options.trainable) return replace_global_by_local(request);
  const std::int64_t size = request.shape.elements();
  if (size < small_size_) {
    request.options.caching_device = small_device_;
    return;
  }
  const auto least = std::ranges::min_element(loads_);  // the first of several
  *least += size;
  request.options.caching_device = devices_[static_cast<std::size_t>(least - loads_.begin())];
}

}  // namespace belfry
