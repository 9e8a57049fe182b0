#pragma once
#include "belfry/framework/plan/lists.h"
#include "belfry/framework/plan/plan_graph.h"

namespace belfry {

// For each node, the nodes that come after it, in order.
using Consumers = Lists<PlanNode, NodeIndex>;

}  // namespace belfry
