// A bias with the activation behind it, and the gradient of the activation with that of the bias,
// in one pass over memory. Plans make these nodes (passes/fuse.cc); bits are those of the nodes one
// by one. All tensors are of one type: f32 or f64, on GPUs f16 and bf16, too.
#pragma once
#include "belfry/framework/graph/op.h"

namespace belfry {

class Surroundings;

// x [n, ..., c], bias [c] -> y, and perhaps x + bias. As Add and the activation.
extern const Op kBiasRelu;
extern const Op kBiasGelu;
extern const Op kBiasSilu;

// dy, and what the gradient of the activation reads: y of ReLU, else x + bias -> the gradient of x
// + bias, and that of bias. As ReluGrad, GeluGrad or SiluGrad, and ReduceSum.
extern const Op kBiasReluGrad;
extern const Op kBiasGeluGrad;
extern const Op kBiasSiluGrad;

// Op::fuse of the activations, and of their gradients.
void fuse_bias(Surroundings& around);
void fuse_bias_gradient(Surroundings& around);

}  // namespace belfry
