// collective: one AllReduce node per variable, served by the in-process collective.
#pragma once
#include "belfry/allreduce/strategy.h"

namespace belfry {

// Each variable's K gradients are the inputs of one AllReduce node; output t is tower t's, on its
// device. Means are divided on the way. Canonical for any number of towers. `collective#n` of a
// spec makes n nodes of n chunks of each tensor.
GradientTable allreduce_collective(const GradientTable& grads,
                                   Reduction reduction = Reduction::kMean, At at = {});

}  // namespace belfry
