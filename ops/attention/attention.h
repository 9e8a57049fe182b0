// Attention: each query gathers the values of the keys that it sees (Vaswani et al. 2017). There is
// no matrix of all pairs (Dao et al. 2022).
#pragma once
#include "belfry/framework/graph/graph.h"

namespace belfry {

// The query at time t and the key at time s have the same place if t = s.
struct AttentionOptions {
  int heads = 1;        // of queries, at least 1; they divide the width of q
  int kv_heads = 0;     // of keys and values; they divide `heads`. 0: as many as `heads`
  double scale = 0;     // of the scores, positive; 0: 1 / sqrt(head_dim)
  bool causal = false;  // a query sees keys up to its time
  int window = 0;       // with causal: it sees at most this many, the last ones; 0: no limit
};

// The heads of keys and values.
inline int kv_heads_of(const AttentionOptions& options) {
  return options.kv_heads > 0 ? options.kv_heads : options.heads;
}

// What else decides which keys are seen. Each may be left out.
struct AttentionInputs {
  // [queries, keys], [batch, queries, keys] or [batch, heads, queries, keys]; all dimensions but
  // the last may be 1. Bool: whether a query sees a key. Floating point, of the type of q: is added
  // to the scaled scores, and has a gradient; -infinity hides a key.
  Output mask = {};
  // i32 or i64 [batch]: how many keys of a sample there are; those after them are not seen. A run
  // fails if a length is not in [0, keys].
  Output lengths = {};
};

// q [batch, queries, heads * head_dim], k and v [batch, keys, kv_heads * head_dim], all of one type
// -> y like q, and f32 [batch, heads, queries] (f64 for f64). Head h is columns [h * head_dim, (h +
// 1) * head_dim), as a projection gives them; it uses head h / (heads / kv_heads) of keys and
// values. A query of y is the mean of the values of the keys that it sees, with weights e^(scale *
// (q[t] . k[s]) + mask[t, s]); zeros if it sees none. The second output is the logarithm of the sum
// of these weights. It has no gradient. f16, bf16, f32 and f64; 16-bit types are computed in f32.
// Memory besides the tensors grows with the time, not with its square. Only second derivatives are
// computed by other ops, with tensors of all pairs; they need sizes that are known when the graph
// is built, but for the batch, and NaN and infinities of hidden keys reach all queries.
//
// Later positions do not affect earlier ones with `causal`, nor do keys after `lengths`, not even
// by NaN. But on GPUs in 16 bits and tf32, NaN and infinities reach earlier positions: up to 127 of
// them with our kernels, those of the same block with cuDNN. NaN and infinities of values reach
// queries from which a mask or a window hides them.
extern const Op kAttention;
// Throws InvalidArgument if shapes do not fit, heads do not divide the width, or `window` has no
// `causal`.
Output attention(Output q, Output k, Output v, AttentionOptions options = {},
                 AttentionInputs inputs = {}, At at = {});
// attention() with `causal`.
Output causal_attention(Output q, Output k, Output v, AttentionOptions options = {}, At at = {});
// dy, q, k, v, y, logarithms of sums, and the mask and lengths if given -> dq, dk, dv, and the
// gradient of a floating-point mask.
extern const Op kAttentionGrad;

}  // namespace belfry
