#include "belfry/framework/passes/passes.h"
#include "belfry/framework/placement/placement.h"

namespace belfry {

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
