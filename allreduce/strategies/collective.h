// Common code of strategies that combine by collective nodes: `collective` on the devices of a
// process, and `nccl` on GPUs. There is one node per variable or, as training does by default, one
// per bucket of variables (buckets.h).
#pragma once
#include "belfry/allreduce/strategy.h"
#include "belfry/ops/all_reduce.h"

namespace belfry {

// Builds the node of a bucket: all_reduce_bucket, or nccl_all_reduce_bucket.
using ReduceBucket = std::vector<std::vector<Output>> (*)(std::span<const std::vector<Output>>,
                                                          AllReduceOptions, At);
// Combines by a node per tensor, or by one for all tensors.
OutputRows by_collectives(const GradientTable& grads, bool mean, bool in_one_node,
                          ReduceBucket reduce);

}  // namespace belfry
