// The kernel with which hosts run a FusedUpdate.
#pragma once
#include "belfry/framework/plan/plan_graph.h"

namespace belfry {

// Runs the sum's kernel, then the kernels of its updates, chunk by chunk. A chunk fits in a cache.
KernelRun prepare_fused_update(const PlanGraph& plan, const PlanNode& node, bool reference);

}  // namespace belfry
