// Batch normalisation with what follows it, and its gradient with what precedes it, in one pass
// over memory. Plans make these nodes (passes/fuse.cc); bits are those of the nodes one by one.
//
// On GPUs they also take the casts around a batch norm of 16 bits. Then x, shortcut and y, or dy,
// x, y, dx and g, are of f16 or bf16. All that is per channel is of f32. Otherwise all is of f32,
// or of f64.
#pragma once
#include "belfry/framework/graph/op.h"

namespace belfry {

class Surroundings;

// x, gamma, beta, and perhaps shortcut, which is added -> y, mean, variance. The second also
// applies ReLU. As BatchNormTrain, Add, Relu.
extern const Op kFusedBatchNormTrain;
extern const Op kFusedBatchNormTrainRelu;
// x, gamma, beta, mean, variance, and perhaps shortcut -> y. As BatchNormInference, Add, Relu.
extern const Op kFusedBatchNormInference;
extern const Op kFusedBatchNormInferenceRelu;

// dy, x, gamma, mean, variance, and perhaps y, an output of ReLU -> dx, dgamma, dbeta; with y
// perhaps also g, the gradient of the input of ReLU. As ReluGrad, BatchNormTrainGrad.
extern const Op kFusedBatchNormTrainGrad;
// The same with dmean and dvariance before g. As ReluGrad, BatchNormInferenceGrad.
extern const Op kFusedBatchNormInferenceGrad;
// Of a shard: dy, x, mean, variance, y -> g, dgamma, dbeta. As ReluGrad, BatchNormSums.
extern const Op kReluBatchNormSums;

// Op::fuse of the ops in batch_norm.h.
void fuse_batch_norm(Surroundings& around);
void fuse_batch_norm_gradient(Surroundings& around);
void fuse_batch_norm_sums(Surroundings& around);

// Op::rebuild of the forward ops with ReLU: normalises again by the moments that were found.
void rebuild_batch_norm(Surroundings& around);

}  // namespace belfry
