#include "belfry/framework/core_ops/no_op.h"

#include <algorithm>
#include <map>

#include "belfry/framework/base/require.h"
#include "belfry/framework/base/sort_unique.h"
#include "belfry/framework/core_ops/identity.h"

namespace belfry {
namespace {

KernelRun nothing(KernelPlan&) {
  return [](const KernelPointers&) {};
}

Node& wait_for(Graph& graph, std::span<Node* const> nodes, const DeviceSpec& device, At at) {
  ControlDependencies after(graph, nodes, at.site);
  if (device.empty()) return graph.add(kNoOp, {}, at);
  DeviceScope nothing(graph, NoDevice{}, at.site);
  DeviceScope on(graph, device, at.site);
  return graph.add(kNoOp, {}, at);
}

}  // namespace

const Op kNoOp{.name = "NoOp",
               .inputs = 0,
               .shape = no_outputs,
               .no_gradient = "it has no outputs",
               .reference = nothing};

Node& group(Graph& graph, std::span<Node* const> nodes, At at) {
  NameScope names(graph, at.name.empty() ? "group_deps" : at.name, at.site);
  const At root(names.path(), at.site);
  std::map<DeviceSpec, std::vector<Node*>> by_device;  // nodes without a device come first
  for (Node* node : nodes) {
    require(node != nullptr, "group (", at.site, "): a node to wait for is empty");
    by_device[node->device()].push_back(node);
  }
  if (by_device.empty()) return wait_for(graph, nodes, {}, root);
  if (by_device.size() == 1) return wait_for(graph, nodes, by_device.begin()->first, root);
  std::vector<Node*> parts;
  for (const auto& [device, members] : by_device)
    parts.push_back(&wait_for(graph, members, device, At(at.site)));
  return wait_for(graph, parts, {}, root);
}

Node& group(Graph& graph, std::initializer_list<ControlInput> nodes, At at) {
  std::vector<Node*> list;
  for (const ControlInput& dependency : nodes) list.push_back(dependency.node());
  return group(graph, list, at);
}

Output with_dependencies(Output x, std::span<Node* const> nodes, At at) {
  ControlDependencies after(x.graph(), nodes, at.site);
  ColocateWith beside(x, at.site);
  return identity(x, At(at.name.empty() ? "control_dependency" : at.name, at.site));
}

std::vector<Output> tuple_of(std::span<const Output> outputs, std::span<Node* const> also, At at) {
  std::vector<Node*> gates(also.begin(), also.end());
  for (const Output& output : outputs)
    if (output) gates.push_back(&output.node());
  const auto first = std::ranges::find_if(outputs, [](const Output& x) { return bool(x); });
  require(first != outputs.end(), "tuple_of (", at.site, "): must have at least one output");
  sort_unique(gates, &Node::id);
  NameScope names(first->graph(), at.name.empty() ? "tuple" : at.name, at.site);
  Node* const gate[] = {&group(first->graph(), gates, At(at.site))};
  std::vector<Output> result;
  for (const Output& output : outputs)
    result.push_back(output ? with_dependencies(output, gate, At(at.site)) : Output());
  return result;
}

}  // namespace belfry
