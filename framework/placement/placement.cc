#include "belfry/framework/placement/placement.h"

#include <algorithm>
#include <utility>

#include "belfry/framework/placement/placer.h"

namespace belfry {

Placement::Placement(const Graph& graph, PlacementContext context)
    : graph_(graph), context_(std::move(context)), version_(graph.version()) {
  graph.require_closed();
  const Placer placer(graph_, context_);
  devices_ = placer.devices();
  late_ = placer.late();
  collectives_ = placer.collectives();
}

std::vector<int> Placement::devices(const Node& node) const {
  const auto found = collectives_.find(node.id());
  if (found != collectives_.end()) return found->second;
  const int device = devices_[at(node.id())];
  if (device < 0) Placer(graph_, context_).refuse(node.id());
  return std::vector<int>(std::max<std::size_t>(1, node.outputs()), device);
}

int Placement::device(const Output& output) const {
  const auto found = collectives_.find(output.node().id());
  return found == collectives_.end() ? devices(output.node()).front()
                                     : found->second[at(output.index())];
}

}  // namespace belfry
