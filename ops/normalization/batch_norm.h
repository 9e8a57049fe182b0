// Batch normalisation over the last axis (Ioffe and Szegedy 2015): y = (x - mean) / sqrt(variance +
// epsilon) * gamma + beta per channel. Layers and moving averages are built from these in towers/.
#pragma once
#include "belfry/framework/graph/graph.h"

namespace belfry {

struct BatchNormOptions {
  double epsilon = 1e-5;  // at least 0
};

// The results of batch_norm_train. The moments [c] are those of x over all axes but the last, with
// the population variance. Only y can be differentiated.
struct BatchNorm {
  Output y, mean, variance;
};

// x [..., c] of rank 2 or more, gamma [c], beta [c], all f32 or all f64. Moments are computed per
// block of rows as (mean, sum of squared differences from it) and combined by a balanced tree (Chan
// et al. 1979).
extern const Op kBatchNormTrain;
BatchNorm batch_norm_train(Output x, Output gamma, Output beta, BatchNormOptions options = {},
                           At at = {});
// dy, x, gamma, mean, variance -> dx, dgamma, dbeta.
extern const Op kBatchNormTrainGrad;

// The steps of these ops if a device cuts its batch into shards (plan/expansion.h).
// dy, x, mean, variance -> dgamma, dbeta of the rows of a shard.
extern const Op kBatchNormSums;
// dy, x, gamma, mean, variance, dgamma, dbeta -> dx, where dgamma and dbeta are sums over all
// shards.
extern const Op kBatchNormInputGrad;

// Normalises by given moments [c], such as moving averages; gradients flow to them as to the other
// inputs.
extern const Op kBatchNormInference;
Output batch_norm_inference(Output x, Output gamma, Output beta, Output mean, Output variance,
                            BatchNormOptions options = {}, At at = {});
// dy, x, gamma, mean, variance -> dx, dgamma, dbeta, dmean, dvariance.
extern const Op kBatchNormInferenceGrad;

}  // namespace belfry
