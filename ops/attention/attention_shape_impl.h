// The sizes of an attention, and which keys a query sees: for hosts and GPUs.
#pragma once
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

  // Heads that share keys and values.
  BELFRY_HD std::int64_t group() const { return heads / kv_heads; }
  // Keys [first_key, end_key) are seen by a query if the mask lets it, of `given` keys.
  BELFRY_HD std::int64_t first_key(std::int64_t query) const {
    return window > 0 && query >= window ? query - window + 1 : 0;
  }
  BELFRY_HD std::int64_t end_key(std::int64_t query, std::int64_t given) const {
    return causal && query < given ? query + 1 : given;
  }
};

// Of a plan of the op (`first` = 0) or of its gradient (`first` = 1), whose input `first` is q.
AttentionShape attention_shape_of(const KernelPlan& plan, std::size_t first);

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
AttentionPlaces attention_places(const KernelPlan& plan, std::size_t fixed);

// Throws InvalidArgument for a length that is not in [0, keys].
[[noreturn]] void refuse_keys(const Node& node, std::int64_t sample, std::int64_t length,
                              std::int64_t keys);

}  // namespace belfry::kernels
