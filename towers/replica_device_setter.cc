#include "belfry/towers/replica_device_setter.h"

#include "belfry/framework/base/require.h"

namespace belfry {

ReplicaDeviceSetter::ReplicaDeviceSetter(ReplicaDeviceOptions options)
    : options_(std::move(options)) {
  require(options_.ps_tasks >= 0, str(), ": the number of parameter servers is ", options_.ps_tasks,
          "; it must not be negative");
}

DeviceSpec ReplicaDeviceSetter::place(const Node& node) {
  const DeviceSpec& inner = node.device();
  if (options_.ps_tasks == 0) return inner;
  if (!node.is_variable()) return options_.worker_device.merged_with(inner);
  DeviceSpec server = options_.ps_device;
  if (server.job && (!inner.job || inner.job == server.job)) {
    server.task = next_task_;
    next_task_ = (next_task_ + 1) % options_.ps_tasks;
  }
  server = server.merged_with(inner);
  load_[server.str()] += node.output_type(0).shape.elements();
  return server;
}

std::string ReplicaDeviceSetter::str() const {
  return "ReplicaDeviceSetter-" + options_.worker_device.str();
}

}  // namespace belfry
