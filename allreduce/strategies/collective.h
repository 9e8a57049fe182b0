// What strategies share that are AllReduce nodes, which the in-process collective serves. There is
// one node per variable or, as training does by default, one per bucket of variables (bucketed.h).
#pragma once
#include "belfry/allreduce/strategy.h"
#include "belfry/ops/all_reduce.h"

namespace belfry {

// The builder of a bucket: all_reduce_bucket, or another one.
using ReduceBucket = std::vector<std::vector<Output>> (*)(std::span<const std::vector<Output>>,
                                                          AllReduceOptions, At);
// For strategies that are such nodes: one per tensor, or one for all tensors.
std::vector<std::vector<Output>> by_collectives(const GradientTable& grads, bool mean,
                                                bool in_one_node, ReduceBucket reduce);

}  // namespace belfry
