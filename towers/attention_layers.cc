#include "belfry/towers/attention_layers.h"

#include "belfry/framework/base/require.h"
#include "belfry/framework/core_ops/constant.h"
#include "belfry/framework/core_ops/placeholder.h"
#include "belfry/framework/graph/scopes.h"
#include "belfry/ops/attention/composed_attention.h"
#include "belfry/ops/attention/rotary_embedding.h"
#include "belfry/ops/cast.h"
#include "belfry/ops/gather.h"
#include "belfry/ops/operand.h"
#include "belfry/ops/reduce.h"
#include "belfry/ops/reshape.h"
#include "belfry/ops/split.h"
#include "belfry/towers/layer_scope_impl.h"
#include "belfry/towers/layers.h"

namespace belfry {
namespace {

// The parts of a layer of attention.
class AttentionParts {
 public:
  AttentionParts(Tower& tower, std::string_view what, std::string_view name, Output x,
                 AttentionLayer layer, At at)
      : tower_(tower), layer_(std::move(layer)), at_(at.site) {
    require_channels(what, name, x, 3, at.site);
    width_ = x.shape()[2];
    require_layer(x.shape()[1] != kUnknownSize, what, name, at.site,
                  cat("the time of ", x.type(), " must be known"));
    require_layer(layer_.heads > 0 && width_ % layer_.heads == 0, what, name, at.site,
                  cat(layer_.heads, " heads do not divide the width of ", x.type()));
    require_layer(layer_.window == 0 || layer_.causal, what, name, at.site,
                  "a window needs causal attention");
    if (layer_.kv_heads == 0) layer_.kv_heads = layer_.heads;
    require_layer(
        layer_.kv_heads > 0 && layer_.heads % layer_.kv_heads == 0, what, name, at.site,
        cat(layer_.kv_heads, " heads of keys and values do not divide ", layer_.heads, " heads"));
    require_layer(layer_.dropout >= 0 && layer_.dropout < 1, what, name, at.site,
                  cat("dropout is a probability >= 0 and below 1, not ", layer_.dropout));
  }

  std::int64_t kv_width() const { return width_ / layer_.heads * layer_.kv_heads; }

  // Queries, keys and values of x.
  std::vector<Output> of_self(Output x) const {
    std::vector<Output> parts = not_rotated(x);
    parts[0] = rotated(parts[0], layer_.heads);
    parts[1] = rotated(parts[1], layer_.kv_heads);
    return parts;
  }
  // Those of the position where `place` [N,time,1] is 1, and 0 elsewhere: the query [N,1,width];
  // key and value [N,time,kv_width], zeros at other positions.
  std::vector<Output> of_one(Output x, Output place) const {
    std::vector<Output> parts = not_rotated(x);
    if (layer_.rotary)
      parts[0] = reduce_sum(rotated(place * parts[0], layer_.heads), {1}, ReducedAxes::kKept, at_);
    parts[1] = rotated(place * parts[1], layer_.kv_heads);
    parts[2] = place * parts[2];
    return parts;
  }
  std::vector<Output> of_both(Output x, Output memory) const {
    const Output q = into("q", x, width_);
    const std::vector<Output> kv = split(into("kv", memory, 2 * kv_width()), 2, 2, at_);
    return {q, kv[0], kv[1]};
  }
  Output attend(const std::vector<Output>& qkv, const AttentionOptions& options,
                AttentionInputs inputs) const {
    AttentionOptions all = options;
    all.heads = layer_.heads;
    all.kv_heads = layer_.kv_heads;
    const Output y = layer_.dropout > 0 && tower_.is_training()
                         ? with_dropout(qkv, all, inputs)
                         : attention(qkv[0], qkv[1], qkv[2], all, inputs, at_);
    return dense(tower_, "out", y, dense_layer(width_, layer_.out ? layer_.out : layer_.init), at_);
  }

 private:
  DenseLayer dense_layer(std::int64_t units, const Initializer& init) const {
    return {.units = static_cast<int>(units),
            .bias = layer_.bias,
            .init = init,
            .trainable = layer_.trainable};
  }
  Output with_dropout(const std::vector<Output>& qkv, const AttentionOptions& options,
                      const AttentionInputs& inputs) const {
    if (const Output mask = inputs.mask)
      require(mask.dtype() == DType::kBool || is_floating(mask.dtype()), "attention (built at ",
              at_, "): the mask ", mask.type(), " is neither bool nor floating");
    const SiteScope lines(tower_.graph(), at_);
    const NameScope names(tower_.graph(), "attention");
    return composed_attention(qkv[0], qkv[1], qkv[2], options, inputs, layer_.dropout);
  }
  std::vector<Output> not_rotated(Output x) const {
    const Output qkv = into("qkv", x, width_ + 2 * kv_width());
    return kv_width() == width_ ? split(qkv, 3, 2, at_)
                                : split(qkv, {width_, kv_width(), kv_width()}, 2, at_);
  }
  Output rotated(Output x, int heads) const {
    return layer_.rotary ? rotary_embedding(x, {.heads = heads, .base = layer_.base}, at_) : x;
  }
  Output into(std::string_view name, Output x, std::int64_t units) const {
    return dense(tower_, name, x, dense_layer(units, layer_.init), at_);
  }

  Tower& tower_;
  AttentionLayer layer_;
  SourceLine at_;
  std::int64_t width_ = 0;
};

Output self_attention(Tower& tower, std::string_view what, std::string_view name, Output x,
                      const AttentionLayer& layer, AttentionInputs inputs, At at) {
  const AttentionParts parts(tower, what, name, x, layer, at);
  LayerScope scope(tower, what, name, at);
  return parts.attend(parts.of_self(x), {.causal = layer.causal, .window = layer.window}, inputs);
}

}  // namespace

Output multi_head_attention(Tower& tower, std::string_view name, Output x, AttentionLayer layer,
                            AttentionInputs inputs, At at) {
  return self_attention(tower, "multi_head_attention", name, x, layer, inputs, at);
}

Output multi_head_attention(Tower& tower, std::string_view name, Output x, Output memory,
                            AttentionLayer layer, AttentionInputs inputs, At at) {
  constexpr std::string_view kWhat = "multi_head_attention";
  const AttentionParts parts(tower, kWhat, name, x, layer, at);
  require_channels(kWhat, name, memory, 3, at.site);
  require_layer(memory.shape()[1] != kUnknownSize, kWhat, name, at.site,
                cat("the time of ", memory.type(), " must be known"));
  require_layer(!layer.rotary, kWhat, name, at.site,
                "rotary needs queries and keys of one sequence; leave out memory");
  LayerScope scope(tower, kWhat, name, at);
  return parts.attend(parts.of_both(x, memory), {.causal = layer.causal, .window = layer.window},
                      inputs);
}

Output causal_self_attention(Tower& tower, std::string_view name, Output x, AttentionLayer layer,
                             At at) {
  layer.causal = true;
  return self_attention(tower, "causal_self_attention", name, x, layer, {}, at);
}

KeyValueCache key_value_cache(Tower& tower, std::string_view name, const Shape& shape, At at) {
  const auto fed = [&](std::string_view part) {
    return placeholder(tower.graph(), cat(name, "/", part), DType::kF32, shape, at.site);
  };
  return {.keys = fed("keys"), .values = fed("values")};
}

Output causal_self_attention(Tower& tower, std::string_view name, Output x, AttentionLayer layer,
                             const TokenStep& step, KeyValueCache& cache, At at) {
  constexpr std::string_view kWhat = "causal_self_attention";
  layer.causal = true;
  const AttentionParts parts(tower, kWhat, name, x, layer, at);
  require_layer(x.shape()[1] == 1, kWhat, name, at.site,
                cat("a cache takes one position at a time, not ", x.type()));
  require_layer(layer.window == 0, kWhat, name, at.site, "a cache has no window");
  const Shape& known = cache.keys.shape();
  require_layer(known.rank() == 3 && known[1] == step.time && known[2] == parts.kv_width(), kWhat,
                name, at.site,
                cat("the cache is ", cache.keys.type(), ", but must be f32[n,", step.time, ",",
                    parts.kv_width(), "]"));
  LayerScope scope(tower, kWhat, name, at);
  // 1 at the new position, where the caches have zeros.
  Tensor units({step.time, step.time}, cache.keys.dtype());
  for (std::int64_t t = 0; t < step.time; ++t)
    units.mutable_data<float>()[static_cast<std::size_t>(t * step.time + t)] = 1;
  const Output place =
      reshape(gather(constant(tower.graph(), std::move(units), At("units", at.site)), step.position,
                     at.site),
              {kUnknownSize, step.time, 1}, at.site);
  std::vector<Output> qkv = parts.of_one(x, cast(place, x.dtype()));
  cache.keys = cache.keys + cast(qkv[1], cache.keys.dtype());
  cache.values = cache.values + cast(qkv[2], cache.values.dtype());
  qkv[1] = cast(cache.keys, qkv[0].dtype());
  qkv[2] = cast(cache.values, qkv[0].dtype());
  return parts.attend(qkv, {}, {.lengths = step.length});
}

}  // namespace belfry
