#include <algorithm>
#include <utility>

#include "belfry/framework/passes/passes.h"
#include "belfry/framework/placement/placer.h"

namespace belfry {

Placement::Placement(const Graph& graph, PlacementContext context)
    : graph_(graph), context_(std::move(context)), version_(graph.version()) {
  require_closed(graph);
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

void place(PlanGraph& plan, const PlanContext& context) {
  plan.placement = context.placement;
  const Placement& placement = *plan.placement;
  const auto take = [&](PlanNode& planned) {
    planned.devices = planned.feed() >= 0
                          ? std::vector{placement.device(plan.feeds[at(planned.feed())].where)}
                          : placement.devices(*planned.node);
    const std::size_t named = planned.op->collective ? planned.devices.size() : 1;
    for (std::size_t i = 0; i < named; ++i)
      plan.assignments.push_back({planned.node, planned.devices[i]});
  };
  for (const bool late : {false, true})
    for (PlanNode& planned : plan.nodes)
      if (planned.fetch() < 0 && placement.late(*planned.node) == late) take(planned);
  for (PlanNode& planned : plan.nodes)
    if (planned.fetch() >= 0) planned.devices = {plan.device(planned.inputs[0])};
}

}  // namespace belfry
