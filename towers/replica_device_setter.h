// Puts variables on parameter servers and everything else on a worker.
#pragma once
#include <cstdint>
#include <map>
#include <string>

#include "belfry/framework/graph/scopes.h"

namespace belfry {

struct ReplicaDeviceOptions {
  int ps_tasks = 0;  // parameter servers; none: the setter changes nothing
  DeviceSpec ps_device = "/job:ps";
  DeviceSpec worker_device = "/job:worker";
};

// Variables (of every kind) go to ps_device, other nodes to worker_device. Both fill in only the
// fields that inner scopes left open. If ps_device names a job, and the node names none or the
// same, variables take its tasks 0, 1, ..., ps_tasks - 1 in turn. The semantics are those of
// TensorFlow's replica_device_setter.
//   auto setter = replica_device_setter({.ps_tasks = 2});
//   DeviceScope on(graph, setter);
class ReplicaDeviceSetter final : public DeviceSetter {
 public:
  // Throws InvalidArgument if ps_tasks is negative.
  explicit ReplicaDeviceSetter(ReplicaDeviceOptions options);

  DeviceSpec place(const Node& node) override;
  // "ReplicaDeviceSetter-/job:worker": the worker's device.
  std::string str() const override;
  // Elements of the variables that it placed, per device.
  std::map<std::string, std::int64_t> load() const override { return load_; }

 private:
  ReplicaDeviceOptions options_;
  int next_task_ = 0;
  std::map<std::string, std::int64_t> load_;
};

inline ReplicaDeviceSetter replica_device_setter(ReplicaDeviceOptions options) {
  return ReplicaDeviceSetter(std::move(options));
}

}  // namespace belfry
