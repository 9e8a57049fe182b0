// Who uses the nodes of a plan.
#pragma once
#include "belfry/framework/plan/lists.h"
#include "belfry/framework/plan/plan_graph.h"

namespace belfry {

// Of each node those that come after it, in order.
using Consumers = Lists<PlanNode, NodeIndex>;

}  // namespace belfry
