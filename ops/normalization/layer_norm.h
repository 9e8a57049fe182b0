// LayerNorm and RmsNorm: normalisation of each row separately, over the last axis.
#pragma once
#include "belfry/framework/graph/graph.h"

namespace belfry {

struct LayerNormOptions {
  double epsilon = 1e-5;  // at least 0
};

// x [n, ..., c] of rank 2 or more, gamma [c], beta [c], all f32 or all f64 -> like x: (x - mean) /
// sqrt(variance + epsilon) * gamma + beta with the mean and population variance of each row (Ba et
// al. 2016). The mean is computed first; sums are folds (framework/kernels/reduce.h).
extern const Op kLayerNorm;
Output layer_norm(Output x, Output gamma, Output beta, LayerNormOptions options = {}, At at = {});
// dy, x, gamma -> dx, dgamma, dbeta. The last two are sums over the rows of each shard.
extern const Op kLayerNormGrad;

struct RmsNormOptions {
  double epsilon = 1e-6;  // at least 0
};

// x [n, ..., c] of rank 2 or more, gamma [c], all f32 or all f64 -> like x: x / sqrt(mean of x^2
// over the row + epsilon) * gamma (Zhang and Sennrich 2019).
extern const Op kRmsNorm;
Output rms_norm(Output x, Output gamma, RmsNormOptions options = {}, At at = {});
// dy, x, gamma -> dx, dgamma.
extern const Op kRmsNormGrad;

}  // namespace belfry
