#include "belfry/framework/core_ops/transfer.h"

#include "belfry/framework/core_ops/made_by_plans.h"

namespace belfry {

const Op kTransfer{.name = "Transfer",
                   .inputs = 1,
                   .shape = same_as_input,
                   .no_gradient = kMadeByPlans,
                   .alias = true};

}  // namespace belfry
