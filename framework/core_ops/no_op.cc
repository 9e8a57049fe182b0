#include "belfry/framework/core_ops/no_op.h"

#include <map>

#include "belfry/framework/core_ops/identity.h"
#include "belfry/framework/scopes.h"

namespace belfry {
namespace {

KernelRun nothing(KernelPlan&) {
  return [](const Pointers&) {};
}

Node& wait_for(Graph& graph, std::span<Node* const> nodes, const DeviceSpec& device, At at) {
  DeviceScope alone(graph, NoDevice{}, at.site);
  DeviceScope on(graph, device, at.site);
  ControlDependencies after(graph, nodes);
  return graph.add(kNoOp, {}, at);
}

}  // namespace

const Op kNoOp{.name = "NoOp",
               .inputs = 0,
               .shape = no_outputs,
               .no_gradient = "it has no outputs",
               .reference = nothing};

Node& group(Graph& graph, std::span<Node* const> nodes, At at) {
  std::map<DeviceSpec, std::vector<Node*>> by_device;  // nodes without a device come first
  for (Node* node : nodes) by_device[node->device()].push_back(node);
  if (by_device.empty()) return wait_for(graph, nodes, {}, at);
  if (by_device.size() == 1) return wait_for(graph, nodes, by_device.begin()->first, at);
  const std::string prefix = at.name.empty() ? "group" : std::string(at.name);
  std::vector<Node*> parts;
  for (const auto& [device, members] : by_device)
    parts.push_back(&wait_for(graph, members, device, At(cat(prefix, "/NoOp"), at.site)));
  ControlDependencies after(graph, parts);
  return graph.add(kNoOp, {}, at);
}

Output with_dependencies(Output x, std::span<Node* const> nodes, At at) {
  ControlDependencies after(x.graph(), nodes);
  ColocateWith beside(x);
  return identity(x, at);
}

}  // namespace belfry
