// A bias and its activation in one pass over memory, and likewise their gradients. Plans make these
// nodes (passes/fuse.cc); the bits are those of the separate nodes. All tensors are of one type:
// f32 or f64, on GPUs f16 and bf16, too.
#pragma once
#include "belfry/framework/graph/op.h"

namespace belfry {

class Surroundings;

// x [n, ..., c], bias [c] -> y, and perhaps x + bias. Replaces Add and the activation.
extern const Op kBiasRelu;
extern const Op kBiasGelu;
extern const Op kBiasSilu;

// dy, and y for ReLU, else x + bias -> the gradients of x + bias and of bias. Replaces ReluGrad,
// GeluGrad or SiluGrad, and ReduceSum.
extern const Op kBiasReluGrad;
extern const Op kBiasGeluGrad;
extern const Op kBiasSiluGrad;

// Op::fuse of the activations, and of their gradients.
void fuse_bias(Surroundings& around);
void fuse_bias_gradient(Surroundings& around);

}  // namespace belfry
