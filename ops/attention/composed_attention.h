// Attention by other ops, with tensors of all pairs of queries and keys.
#pragma once
#include "belfry/ops/attention/attention.h"

namespace belfry {

// y of attention(), after dropout() of its weights with this probability. 16-bit types are computed
// in f32. The width and the times of queries and keys must be known.
Output composed_attention(Output q, Output k, Output v, const AttentionOptions& options,
                          const AttentionInputs& inputs, double dropout_rate = 0);

// Op::gradient of AttentionGrad: that of composed_attention(). y and the logarithms of sums follow
// from q, k, v and the mask, so they have no gradients of their own. Throws InvalidArgument if the
// time of queries or keys is unknown.
std::vector<Output> attention_grad_gradient(const Node& node, std::span<const Output> grads);

}  // namespace belfry
