// Nodes of ops that have no kernel for GPUs, in models on GPUs.
#pragma once
#include <optional>
#include <utility>
#include <vector>

#include "belfry/framework/graph/graph.h"
#include "belfry/framework/graph/scopes.h"

namespace belfry {

// Graph::add() under the scopes in force; on the host of the GPU that has the first input, or on
// which these scopes would place the node.
inline Node& add_on_host(const Op& op, const std::vector<Output>& inputs, At at,
                         NodeOptions options = {}) {
  Graph& graph = inputs[0].graph();
  std::optional<HostScope> host;
  DeviceSpec device = inputs[0].node().device();
  if (!device.is_gpu()) device = enclosing_device(graph);
  if (device.is_gpu()) host.emplace(graph, device);
  return graph.add(op, inputs, at, std::move(options));
}

}  // namespace belfry
