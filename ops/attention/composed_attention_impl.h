// Second derivatives of attention.
#pragma once
#include "belfry/framework/graph/graph.h"

namespace belfry {

// Op::gradient of AttentionGrad: that of attention by other ops, with tensors of all pairs of
// queries and keys. 16-bit types are computed in f32. y and the logarithms of sums follow from q,
// k, v and the mask, so they have no gradients of their own. Throws InvalidArgument if the time of
// queries or keys is unknown.
std::vector<Output> attention_grad_gradient(const Node& node, std::span<const Output> grads);

}  // namespace belfry
