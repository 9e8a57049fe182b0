#include "belfry/framework/core_ops/fused.h"

#include "belfry/framework/core_ops/made_by_plans_impl.h"

namespace belfry {

// Its kernel depends on what was fused: prepare_fused() makes it.
const Op kFused{.name = "Fused",
                .inputs = kVariadic,
                .shape = shape_by_plans,
                .no_gradient = kMadeByPlans,
                .reference = kernel_by_plans,
                .cpu_only = "plans make it of nodes on hosts"};

}  // namespace belfry
