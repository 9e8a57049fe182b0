// Getters for a VariableScope, which change a model's requests for variables.
#pragma once
#include <cstdint>
#include <vector>

#include "belfry/framework/graph/graph.h"

namespace belfry {

// Gives trainable variables a caching device. Small ones get one device; larger ones get the first
// of `devices` on which this getter has cached the fewest elements so far.
//   OverrideCachingDevice cache(devices, "/cpu:0", 1024 * 64);
//   VariableScope scope(graph, cache);
//
// As in tensorpack, a variable that is not trained keeps the caching device that it requests and
// becomes local, so checkpoints leave it out. Its collections, if it names any, must include
// kGlobalVariables. tf_cnn_benchmarks caches such variables, too. Tensorpack does the same if the
// shape is unknown; here shapes of variables are always known.
class OverrideCachingDevice final : public VariableGetter {
 public:
  // Variables of fewer than `small_variable_size` elements (not bytes) are small. Throws
  // InvalidArgument if there are no devices.
  OverrideCachingDevice(std::vector<DeviceSpec> devices, DeviceSpec device_for_small_variables,
                        std::int64_t small_variable_size);

  void request(VariableRequest& request) override;

  // Elements per device, in the order of the devices.
  const std::vector<std::int64_t>& loads() const { return loads_; }

 private:
  std::vector<DeviceSpec> devices_;
  DeviceSpec small_device_;
  std::int64_t small_size_;
  std::vector<std::int64_t> loads_;
};

}  // namespace belfry
