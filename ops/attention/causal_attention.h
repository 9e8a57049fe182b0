// CausalAttention: each position of a sequence gathers values of positions up to it (Vaswani et al.
// 2017). There is no matrix of all pairs (Dao et al. 2022).
#pragma once
#include "belfry/framework/graph/graph.h"

namespace belfry {

struct CausalAttentionOptions {
  int heads = 1;     // at least 1; they divide the width
  double scale = 0;  // of the scores, positive; 0: 1 / sqrt(head_dim)
};

// q, k, v [batch, time, heads * head_dim], all of one type -> y like them, and f32 [batch, heads,
// time] (f64 for f64). Head h is columns [h * head_dim, (h + 1) * head_dim), as a projection gives
// them. Position t of a head of y is the mean of rows v[s], s <= t, with weights e^(scale * (q[t] .
// k[s])). The second output is the logarithm of the sum of these weights. It has no gradient. f16,
// bf16, f32 and f64; 16-bit types are computed in f32. Memory besides the tensors grows with the
// time, not with its square. Later positions do not affect earlier ones, not even by NaN. But on
// GPUs in 16 bits and tf32, NaN and infinities reach earlier positions: up to 127 of them with our
// kernels, those of the same block with cuDNN.
extern const Op kCausalAttention;
// Throws InvalidArgument if shapes differ, or heads do not divide the width.
Output causal_attention(Output q, Output k, Output v, CausalAttentionOptions options = {},
                        At at = {});
// dy, q, k, v, y, logarithms of sums -> dq, dk, dv.
extern const Op kCausalAttentionGrad;

// The factor of scores in kernels.
double attention_scale(const CausalAttentionOptions& options, std::int64_t head_dim);

}  // namespace belfry
