// colocate: sums where the variables are, for parameter-server trainers.
#pragma once
#include "belfry/allreduce/strategy.h"

namespace belfry {

// Each variable's gradients are summed by add_n on the device of tower 0's variable. All towers
// share the result. Canonical for any number of towers.
GradientTable aggregate_colocate(const GradientTable& grads, Reduction reduction = Reduction::kMean,
                                 At at = {});

}  // namespace belfry
