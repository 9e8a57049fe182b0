#include <algorithm>
#include <map>

#include "belfry/framework/core_ops/add_n.h"
#include "belfry/framework/core_ops/no_op.h"
#include "belfry/framework/gradients/gradient_sum_impl.h"

namespace belfry {
namespace {

// The value on the device that most uses request; the first of several.
Output home_of(std::span<const GradientUse> uses) {
  std::map<DeviceSpec, std::ptrdiff_t> count;
  for (const GradientUse& use : uses) ++count[use.value.device()];
  return std::ranges::max_element(
             uses, {}, [&](const GradientUse& use) { return count.at(use.value.device()); })
      ->value;
}

}  // namespace

Output sum_uses(std::span<const GradientUse> uses, const std::string& name, Output beside_x) {
  if (uses.size() == 1) return uses[0].value;
  const bool one_device = std::ranges::all_of(
      uses, [&](const GradientUse& use) { return use.value.device() == uses[0].value.device(); });
  std::vector<Output> parts;
  if (one_device) {
    for (const GradientUse& use : uses) parts.push_back(use.value);
  } else {
    const std::size_t middle = (uses.size() + 1) / 2;
    parts = {sum_uses(uses.first(middle), name), sum_uses(uses.subspan(middle), name)};
  }
  const Output home = beside_x && !one_device ? beside_x : home_of(uses);
  const ColocateWith nothing_else(home.graph(), nullptr);
  const Beside beside(home);
  return add_n(parts, At(name));
}

void make_available_together(Graph& graph, std::vector<Output>& values) {
  std::map<int, Node*> nodes;
  for (const Output& value : values)
    if (value) nodes.emplace(value.node().id(), &value.node());
  if (nodes.empty()) return;
  std::vector<Node*> all;
  for (const auto& [id, node] : nodes) all.push_back(node);
  const ColocateWith nothing(graph, nullptr);
  const NameScope names(graph, "tuple");
  Node* const gates[] = {&group(graph, all, "group_deps")};
  for (Output& value : values)
    if (value) value = with_dependencies(value, gates, "control_dependency");
}

}  // namespace belfry
