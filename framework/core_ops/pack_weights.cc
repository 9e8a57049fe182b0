#include "belfry/framework/core_ops/pack_weights.h"

#include "belfry/framework/core_ops/made_by_plans.h"

namespace belfry {

// The kernel comes from the packed form.
const Op kPackWeights{.name = "PackWeights",
                      .inputs = 1,
                      .shape = shape_by_plans,
                      .no_gradient = kMadeByPlans,
                      .reference = kernel_by_plans,
                      .cpu_only = "GPUs take weights as they are"};

}  // namespace belfry
