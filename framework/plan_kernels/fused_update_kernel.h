// The kernel by which hosts run a FusedUpdate.
#pragma once
#include "belfry/framework/plan/plan_graph.h"

namespace belfry {

// The sum's kernel, then those of its updates, chunk by chunk. A chunk fits in a cache.
KernelRun prepare_fused_update(const PlanGraph& plan, const PlanNode& node, bool reference);

}  // namespace belfry
