#include <cmath>
#include <limits>

#include "belfry/framework/core_ops/constant.h"
#include "belfry/framework/graph/scopes.h"
#include "belfry/ops/cast.h"
#include "belfry/ops/dropout.h"
#include "belfry/ops/expand_dims.h"
#include "belfry/ops/matmul.h"
#include "belfry/ops/operand.h"
#include "belfry/ops/pointwise/comparisons.h"
#include "belfry/ops/pointwise/where.h"
#include "belfry/ops/reshape.h"
#include "belfry/ops/softmax.h"
#include "belfry/ops/transpose.h"
#include "belfry/towers/attention_with_dropout_impl.h"

namespace belfry {
namespace {

// The place of a query and that of a key decide whether it is seen: bool [queries, keys].
Tensor seen_by_place(std::int64_t queries, std::int64_t keys, std::int64_t window) {
  Tensor seen({queries, keys}, DType::kBool);
  auto* const to = reinterpret_cast<bool*>(seen.mutable_raw());
  for (std::int64_t t = 0; t < queries; ++t)
    for (std::int64_t s = 0; s < keys; ++s)
      to[t * keys + s] = s <= t && (window == 0 || s > t - window);
  return seen;
}

Tensor places(std::int64_t keys, DType dtype) {
  Tensor result({keys}, dtype);
  visit_any(dtype, [&](auto type) {
    using T = decltype(type);
    for (std::int64_t s = 0; s < keys; ++s)
      result.mutable_data<T>()[static_cast<std::size_t>(s)] = static_cast<T>(s);
  });
  return result;
}

// A mask as it broadcasts with [batch, heads, queries, keys].
Output with_heads(Output mask) { return mask.shape().rank() == 3 ? expand_dims(mask, 1) : mask; }

// Scores [batch, heads, queries, keys], some of which do not count.
class Scores {
 public:
  explicit Scores(Output scores) : scores_(scores) {}

  void add(Output mask) {
    const Output wide = cast(with_heads(mask), scores_.dtype());
    scores_ = scores_ + wide;
    hide_unless(greater(wide, -std::numeric_limits<double>::infinity()));
  }
  void hide_unless(Output seen) { seen_ = seen_ ? logical_and(seen_, seen) : seen; }

  // Softmax of those that count; zeros for a query that sees no key.
  Output weights() const {
    constexpr double kHidden = -1e30;
    if (!seen_) return softmax(scores_);
    return where(seen_, softmax(where(seen_, scores_, kHidden)), 0.0);
  }

 private:
  Output scores_, seen_;
};

}  // namespace

Output attention_with_dropout(Output q, Output k, Output v, const AttentionOptions& options,
                              const AttentionInputs& inputs, double rate, SourceLine site) {
  Graph& graph = q.graph();
  const SiteScope lines(graph, site);
  const NameScope names(graph, "attention");
  const std::int64_t heads = options.heads, kv_heads = options.kv_heads, group = heads / kv_heads;
  const std::int64_t queries = q.shape()[1], keys = k.shape()[1], size = q.shape()[2] / heads;
  // [batch, kv_heads, heads that share them, time, size]
  const auto apart = [&](Output x, std::int64_t time, std::int64_t share) {
    return transpose(reshape(x, {kUnknownSize, time, kv_heads, share, size}), {0, 2, 3, 1, 4});
  };
  const Output products =
      matmul(apart(q, queries, group), apart(k, keys, 1), {.transpose_b = true});
  const DType wide = q.dtype() == DType::kF64 ? DType::kF64 : DType::kF32;
  const double scale = options.scale > 0 ? options.scale : 1 / std::sqrt(static_cast<double>(size));
  Scores scores(cast(reshape(products, {kUnknownSize, heads, queries, keys}), wide) * scale);
  if (options.causal)
    scores.hide_unless(constant(graph, seen_by_place(queries, keys, options.window)));
  if (const Output lengths = inputs.lengths)
    scores.hide_unless(less(constant(graph, places(keys, lengths.dtype())),
                            reshape(lengths, {kUnknownSize, 1, 1, 1})));
  if (const Output mask = inputs.mask) {
    require(mask.dtype() == DType::kBool || is_floating(mask.dtype()), "attention: the mask ",
            mask.type(), " is neither bool nor floating");
    if (mask.dtype() == DType::kBool)
      scores.hide_unless(with_heads(mask));
    else
      scores.add(mask);
  }
  const Output weights = cast(dropout(scores.weights(), rate), v.dtype());
  const Output y =
      matmul(reshape(weights, {kUnknownSize, kv_heads, group, queries, keys}), apart(v, keys, 1));
  return reshape(transpose(y, {0, 3, 1, 2, 4}), {kUnknownSize, queries, heads * size});
}

}  // namespace belfry
