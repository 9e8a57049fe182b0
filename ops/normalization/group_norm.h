// GroupNorm: normalisation of each sample by the moments of groups of its channels (Wu and He
// 2018).
#pragma once
#include "belfry/framework/graph/graph.h"

namespace belfry {

struct GroupNormOptions {
  int groups = 32;        // they divide the channels
  double epsilon = 1e-5;  // at least 0
};

// x [n, ..., c] of rank 2 or more, gamma [c], beta [c], all f32 or all f64 -> like x: (x - mean) /
// sqrt(variance + epsilon) * gamma + beta. The mean and the population variance are those of one
// sample and c / groups neighbouring channels.
extern const Op kGroupNorm;
Output group_norm(Output x, Output gamma, Output beta, GroupNormOptions options = {}, At at = {});
// dy, x, gamma -> dx, dgamma, dbeta. The last two are sums over the samples of each shard.
extern const Op kGroupNormGrad;

struct InstanceNormOptions {
  double epsilon = 1e-5;  // at least 0
};

// A group for each channel (Ulyanov et al. 2016); without gamma and beta: by ones and zeros.
Output instance_norm(Output x, Output gamma, Output beta, InstanceNormOptions options = {},
                     At at = {});
Output instance_norm(Output x, InstanceNormOptions options = {}, At at = {});

}  // namespace belfry
