#include "belfry/ops/attention/composed_attention.h"

#include <cmath>
#include <limits>

#include "belfry/framework/base/require.h"
#include "belfry/framework/gradients/gradients.h"
#include "belfry/ops/attention/attention_shape_impl.h"
#include "belfry/ops/cast.h"
#include "belfry/ops/composed_gradient.h"
#include "belfry/ops/dropout.h"
#include "belfry/ops/matmul.h"
#include "belfry/ops/operand.h"
#include "belfry/ops/pointwise/comparisons.h"
#include "belfry/ops/pointwise/where.h"
#include "belfry/ops/reshape.h"
#include "belfry/ops/shapes/constants.h"
#include "belfry/ops/softmax.h"
#include "belfry/ops/transpose.h"

namespace belfry {
namespace {

// The mask as [batch or 1, heads or 1, queries or 1, keys].
Output mask_of_pairs(Output mask) {
  const Shape& m = mask.shape();
  if (m.rank() == 4) return mask;
  return m.rank() == 2 ? reshape(mask, {1, 1, m[0], m[1]}) : reshape(mask, {m[0], 1, m[1], m[2]});
}

// Whether a query sees a key, in a shape that broadcasts to [batch, heads, queries, keys]. Empty if
// all keys are seen.
Output seen_keys(Graph& graph, std::int64_t queries, std::int64_t keys,
                 const AttentionOptions& options, Output mask, Output lengths) {
  Output seen;
  const auto demand = [&](Output also) { seen = seen ? logical_and(seen, also) : also; };
  const Output t = reshape(arange(graph, 0, static_cast<double>(queries), 1, DType::kI32),
                           {queries, 1}),
               s = reshape(arange(graph, 0, static_cast<double>(keys), 1, DType::kI32), {1, keys});
  if (options.causal) demand(less_equal(s, t));
  if (options.window > 0) demand(less(t - s, options.window));
  if (lengths) demand(less(s, reshape(cast(lengths, DType::kI32), {kUnknownSize, 1, 1, 1})));
  if (mask)
    demand(mask.dtype() == DType::kBool
               ? mask
               : not_equal(mask, -std::numeric_limits<double>::infinity()));
  return seen;
}

}  // namespace

// Heads that share keys are one matrix, whose rows are the queries of all of them.
Output composed_attention(Output q, Output k, Output v, const AttentionOptions& options,
                          const AttentionInputs& inputs, double dropout_rate) {
  const std::int64_t batch = q.shape()[0], queries = q.shape()[1], keys = k.shape()[1];
  const std::int64_t heads = options.heads, head_dim = q.shape()[2] / heads,
                     kv_heads = kv_heads_of(options), group = heads / kv_heads;
  const DType dtype = is_half(q.dtype()) ? DType::kF32 : q.dtype();
  const auto rows_of_keys = [&](Output x) {
    return transpose(reshape(cast(x, dtype), {batch, keys, kv_heads, head_dim}), {0, 2, 1, 3});
  };
  const Output by_heads = reshape(cast(q, dtype), {batch, queries, kv_heads, group, head_dim});
  const Output rows_of_queries =
      reshape(transpose(by_heads, {0, 2, 3, 1, 4}), {batch, kv_heads, group * queries, head_dim});

  const double scale =
      options.scale > 0 ? options.scale : 1 / std::sqrt(static_cast<double>(head_dim));
  const Output products = matmul(rows_of_queries, rows_of_keys(k), {.transpose_b = true}) * scale;
  Output scores = reshape(products, {batch, heads, queries, keys});
  const Output mask = inputs.mask ? mask_of_pairs(inputs.mask) : Output();
  if (mask && mask.dtype() != DType::kBool) scores = scores + cast(mask, dtype);

  const Output seen = seen_keys(q.graph(), queries, keys, options, mask, inputs.lengths);
  constexpr double kHidden = -1e30;  // finite, for queries that see no key
  Output weights = seen ? where(seen, softmax(where(seen, scores, kHidden)), 0.0) : softmax(scores);
  if (dropout_rate > 0) weights = dropout(weights, dropout_rate);
  const Output means =
      matmul(reshape(weights, {batch, kv_heads, group * queries, keys}), rows_of_keys(v));
  const Output y =
      transpose(reshape(means, {batch, kv_heads, group, queries, head_dim}), {0, 3, 1, 2, 4});
  return cast(reshape(y, {batch, queries, heads * head_dim}), q.dtype());
}

std::vector<Output> attention_grad_gradient(const Node& node, std::span<const Output> grads) {
  const TensorType q = node.input(1).type(), k = node.input(2).type();
  require(q.shape[1] != kUnknownSize && q.shape[2] != kUnknownSize && k.shape[1] != kUnknownSize,
          node.describe(), ": second derivatives need the sizes of queries ", q, " and keys ", k,
          "; give placeholders all sizes but that of the batch");
  return composed_gradient(node, grads, [&](std::span<const Output> x) {
    const kernels::AttentionPlaces places =
        kernels::attention_places(x.size(), 6, [&](std::size_t i) { return x[i].dtype(); });
    const AttentionInputs inputs{.mask = places.mask > 0 ? x[places.mask] : Output(),
                                 .lengths = places.lengths > 0 ? x[places.lengths] : Output()};
    std::vector<Output> wanted{x[1], x[2], x[3]};
    if (inputs.mask && inputs.mask.dtype() != DType::kBool) wanted.push_back(inputs.mask);
    const Output y = composed_attention(x[1], x[2], x[3], node.options<AttentionOptions>(), inputs);
    return gradients(y, wanted, {.initial = {x[0]}});
  });
}

}  // namespace belfry
