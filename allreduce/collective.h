// collective: AllReduce nodes, served by the in-process collective. One per variable, or, as
// training does by default, one per bucket of variables (bucketed.h).
#pragma once
#include "belfry/allreduce/strategy.h"
#include "belfry/ops/all_reduce.h"

namespace belfry {

// Each variable's K gradients are the inputs of one AllReduce node; output t is tower t's, on its
// device. Means are divided on the way. Canonical for any number of towers. `collective#n` of a
// spec makes n nodes of n chunks of each tensor.
GradientTable allreduce_collective(const GradientTable& grads,
                                   Reduction reduction = Reduction::kMean, At at = {});

// The builder of a bucket: all_reduce_bucket, or another one.
using ReduceBucket = std::vector<std::vector<Output>> (*)(std::span<const std::vector<Output>>,
                                                          AllReduceOptions, At);
// For strategies that are such nodes: one per tensor, or one for all tensors.
std::vector<std::vector<Output>> by_collectives(const GradientTable& grads, bool mean,
                                                bool in_one_node, ReduceBucket reduce);

}  // namespace belfry
