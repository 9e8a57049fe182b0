// Layer and RMS normalisation with the sums before it, and its gradient with the sum after it, in
// one pass over memory. Plans make these nodes (passes/fuse.cc); the bits are those of the separate
// nodes.
//
// All tensors are f32, or all f64. On GPUs these ops also absorb the casts around a norm of 16
// bits. Then x, bias, y and dy are f16 or bf16; rows, shortcut, sum, dx and other have the same
// type or f32.
#pragma once
#include "belfry/framework/graph/op.h"

namespace belfry {

class Surroundings;

// rows, gamma, beta -> y, as LayerNorm; or x, shortcut, perhaps bias [c], gamma, beta -> y, and
// perhaps the sum that is normalised, x + shortcut or (x + bias) + shortcut. x may be a reshape of
// rows with the same last dimension.
extern const Op kFusedLayerNorm;
// dy, rows, gamma, and perhaps other, which is added to dx -> dx, dgamma, dbeta; where dy has 16
// bits and dx f32, perhaps also dx of 16 bits. Replaces LayerNormGrad, AddN, and on GPUs Cast.
extern const Op kFusedLayerNormGrad;
// The same without beta and dbeta.
extern const Op kFusedRmsNorm;
extern const Op kFusedRmsNormGrad;

// Op::fuse of the ops in layer_norm.h.
void fuse_row_norm(Surroundings& around);
void fuse_row_norm_gradient(Surroundings& around);

}  // namespace belfry
