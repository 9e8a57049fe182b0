// The sizes of an attention, and which keys a query sees: for hosts and GPUs.
#pragma once
#include <array>
#include <cstdint>

#include "belfry/framework/graph/kernel.h"
#include "belfry/framework/kernels/simd.h"

namespace belfry::kernels {

enum class MaskKind : std::uint8_t { kNone, kSeen, kAdded };

// Where the mask of a query begins. Steps are in elements; 0 along dimensions of 1.
struct MaskLayout {
  MaskKind kind = MaskKind::kNone;
  std::int64_t sample_step = 0, head_step = 0, query_step = 0;

  BELFRY_HD std::int64_t at(std::int64_t sample, std::int64_t head, std::int64_t query) const {
    return sample * sample_step + head * head_step + query * query_step;
  }
};

struct AttentionShape {
  std::int64_t batch, heads, kv_heads, queries, keys, head_dim;
  double scale;  // of the products of queries and keys
  bool causal;
  std::int64_t window;  // keys; 0: no limit
  MaskLayout mask;
  // Some query may see no key. Otherwise a sum of weights that is zero gives NaN.
  bool may_see_none;
  // Queries, keys and values are columns of one tensor, in this order, and so are their gradients.
  bool joined = false;

  // Heads that share keys and values.
  BELFRY_HD std::int64_t group() const { return heads / kv_heads; }
  // Elements from one time to the next, of results, of queries, and of keys and values.
  BELFRY_HD std::int64_t y_step() const { return heads * head_dim; }
  BELFRY_HD std::int64_t q_step() const {
    return joined ? (heads + 2 * kv_heads) * head_dim : y_step();
  }
  BELFRY_HD std::int64_t kv_step() const { return joined ? q_step() : kv_heads * head_dim; }
  // The tensors that have queries, keys and values.
  std::size_t tensors() const { return joined ? 1 : 3; }
  // Keys [first_key, end_key) are seen by a query if the mask lets it, of `given` keys.
  BELFRY_HD std::int64_t first_key(std::int64_t query) const {
    return window > 0 && query >= window ? query - window + 1 : 0;
  }
  BELFRY_HD std::int64_t end_key(std::int64_t query, std::int64_t given) const {
    return causal && query < given ? query + 1 : given;
  }
};

// Of a plan of the op (`first` = 0) or of its gradient (`first` = 1), whose input `first` is q, or
// has queries, keys and values.
AttentionShape attention_shape_of(const KernelPlan& plan, std::size_t first);

// The addresses of queries, keys and values, or of their gradients. Tensor i is at(i), from `first`
// on. E is the type of their elements, or char where these have `size` bytes.
template <class E, class At>
std::array<E*, 3> heads_at(const AttentionShape& shape, std::size_t first, const At& at,
                           std::int64_t size = 1) {
  E* const q = at(first);
  if (!shape.joined) return {q, at(first + 1), at(first + 2)};
  E* const k = q + shape.heads * shape.head_dim * size;
  return {q, k, k + shape.kv_heads * shape.head_dim * size};
}

// The places of optional inputs; 0 if they are missing.
struct AttentionPlaces {
  std::size_t mask = 0, lengths = 0;
  bool wide = false;  // lengths are i64, not i32
};
// The inputs after the first `fixed` ones, by their types.
template <class TypeOf>
AttentionPlaces attention_places(std::size_t inputs, std::size_t fixed, const TypeOf& dtype) {
  AttentionPlaces places;
  for (std::size_t i = fixed; i < inputs; ++i) {
    const bool wide = dtype(i) == DType::kI64;
    (wide || dtype(i) == DType::kI32 ? places.lengths : places.mask) = i;
    places.wide = places.wide || wide;
  }
  return places;
}
// `first` as for attention_shape_of().
AttentionPlaces attention_places(const KernelPlan& plan, std::size_t first);

// Throws InvalidArgument for a length that is not in [0, keys].
[[noreturn]] void refuse_keys(const Node& node, std::int64_t sample, std::int64_t length,
                              std::int64_t keys);

}  // namespace belfry::kernels
