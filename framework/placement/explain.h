// Explains why the placer put a node where it is, and how a plan runs it.
#pragma once
#include "belfry/framework/graph/explanation.h"
#include "belfry/framework/placement/placement.h"
#include "belfry/framework/plan/plan_graph.h"

namespace belfry {

// Session::explain: places the graph again, and records why.
Explanation explain_placement(const Output& output, const Placement& placement);

// Adds which launch of `plan` does the node's work, how its outputs are cut into shards, and which
// whole copies it makes. Adds nothing for a node that the plan does not run.
void explain_step(const Node& node, const PlanGraph& plan, Explanation& result);

}  // namespace belfry
