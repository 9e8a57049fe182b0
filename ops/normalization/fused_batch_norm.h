// Batch normalisation with the nodes after it, and its gradient with the nodes before it, in one
// pass over memory. Plans make these nodes (passes/fuse.cc); the bits are those of the separate
// nodes.
//
// On GPUs they also absorb the casts around a batch norm of 16 bits. Then x, shortcut and y, or dy,
// x, y, dx and g, are f16 or bf16, and tensors per channel are f32. Otherwise all tensors are f32,
// or all f64.
#pragma once
#include "belfry/framework/graph/kernel.h"
#include "belfry/framework/graph/op.h"

namespace belfry {

class Surroundings;

// x, gamma, beta, and perhaps shortcut, which is added -> y, mean, variance. The second op also
// applies ReLU. Replaces BatchNormTrain, Add, Relu.
extern const Op kFusedBatchNormTrain;
extern const Op kFusedBatchNormTrainRelu;
// x, gamma, beta, mean, variance, and perhaps shortcut -> y. Replaces BatchNormInference, Add,
// Relu.
extern const Op kFusedBatchNormInference;
extern const Op kFusedBatchNormInferenceRelu;

// dy, x, gamma, mean, variance, and perhaps y, an output of ReLU -> dx, dgamma, dbeta; with y
// perhaps also g, the gradient of the input of ReLU. Replaces AddN (on GPUs), ReluGrad,
// BatchNormTrainGrad. On GPUs two more inputs may follow y. An addend is first added to dy. beta
// [c] says that y is ReLU of this batch norm, so that x tells where y is positive.
extern const Op kFusedBatchNormTrainGrad;
// The same with dmean and dvariance before g. Replaces ReluGrad, BatchNormInferenceGrad.
extern const Op kFusedBatchNormInferenceGrad;
// For a shard: dy, x, mean, variance, y -> g, dgamma, dbeta. Replaces ReluGrad, BatchNormSums.
extern const Op kReluBatchNormSums;

// The inputs that a fused gradient may lack; then they are 0.
struct FusedGradientInputs {
  std::size_t y = 0, addend = 0, beta = 0;
};
FusedGradientInputs fused_gradient_inputs(const KernelPlan& plan);

// Op::fuse of the ops in batch_norm.h.
void fuse_batch_norm(Surroundings& around);
void fuse_batch_norm_gradient(Surroundings& around);
void fuse_batch_norm_sums(Surroundings& around);

// Op::rematerialise of the forward ops with ReLU: normalises again, with the moments that the
// forward op found.
void rematerialise_batch_norm(Surroundings& around);

}  // namespace belfry
