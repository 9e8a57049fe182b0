#include "belfry/framework/core_ops/fused_update.h"

#include "belfry/framework/core_ops/made_by_plans.h"

namespace belfry {

// The kernel depends on the fused nodes: prepare_fused_update() makes it.
const Op kFusedUpdate{.name = "FusedUpdate",
                      .inputs = kVariadicInputs,
                      .shape = shape_by_plans,
                      .no_gradient = kMadeByPlans,
                      .split = WorkSplit::kElements,
                      .reference = kernel_by_plans,
                      .cpu_only = "plans make it; GpuBackend::prepare_fused() has its GPU kernel"};

}  // namespace belfry
