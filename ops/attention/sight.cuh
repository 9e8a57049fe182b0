// Which keys a query sees on GPUs, and what the mask adds to their scores.
#pragma once
#include <cstdint>
#include <memory>

#include "belfry/framework/cuda/kernels/indices.h"
#include "belfry/framework/cuda/kernels/queue.h"
#include "belfry/framework/kernels/half_bits.h"
#include "belfry/framework/kernels/math.h"
#include "belfry/ops/attention/attention_shape_impl.h"

namespace belfry::cuda {

using kernels::AttentionShape;
using kernels::MaskKind;
using kernels::Stored;

// E: the type of the elements of tensors.
template <class E>
struct Sight {
  using T = typename Stored<E>::Type;
  struct Look {
    bool seen;
    T added;  // to the scaled score
  };

  AttentionShape shape;
  const void* mask = nullptr;
  Indices lengths{};

  // The keys of a sample.
  BELFRY_HD std::int64_t keys(std::int64_t sample) const {
    if (lengths.at == nullptr) return shape.keys;
    const std::int64_t length = lengths.below(shape.keys + 1, sample);
    return length < 0 ? 0 : length;
  }
  // Of a sample with so many keys, and without the mask.
  BELFRY_HD bool in_range(std::int64_t query, std::int64_t key, std::int64_t keys) const {
    return query < shape.queries && key >= shape.first_key(query) &&
           key < shape.end_key(query, keys);
  }
  BELFRY_HD Look look(std::int64_t sample, std::int64_t head, std::int64_t query, std::int64_t key,
                      std::int64_t keys) const {
    if (!in_range(query, key, keys)) return {false, 0};
    if (shape.mask.kind == MaskKind::kNone) return {true, 0};
    const std::int64_t at = shape.mask.at(sample, head, query) + key;
    if (shape.mask.kind == MaskKind::kSeen) return {static_cast<const bool*>(mask)[at], 0};
    const T added = Stored<E>::widen(static_cast<const E*>(mask)[at]);
    return {added != -math::Format<T>::kInfinity, added};
  }
};

// What is known about the optional inputs before a run.
class SightPlan {
 public:
  // `first` as for attention_shape_of().
  SightPlan(const KernelPlan& plan, std::size_t first)
      : shape_(kernels::attention_shape_of(plan, first)),
        places_(kernels::attention_places(plan, first)),
        refusal_(std::make_shared<const Refusal>(
            [&node = plan.node(), keys = shape_.keys](std::int64_t sample, std::int64_t length) {
              kernels::refuse_keys(node, sample, length, keys);
            })) {}

  const AttentionShape& shape() const { return shape_; }
  // Each query sees the keys up to its own time, and no more.
  bool plain_causal() const {
    return shape_.causal && shape_.window == 0 && places_.mask == 0 && places_.lengths == 0 &&
           shape_.queries == shape_.keys && shape_.heads == shape_.kv_heads;
  }
  template <class E>
  Sight<E> sight(const KernelPointers& p, KernelQueue& queue) const {
    Sight<E> sight{shape_};
    if (places_.mask > 0) sight.mask = p.input<void>(places_.mask);
    if (places_.lengths > 0)
      sight.lengths = {p.input<void>(places_.lengths), places_.wide, queue.fault(refusal_)};
    return sight;
  }

 private:
  AttentionShape shape_;
  kernels::AttentionPlaces places_;
  std::shared_ptr<const Refusal> refusal_;
};

// The addresses of queries, keys and values among the inputs of a launch, from `first` on; of their
// gradients, which are its first outputs.
template <class T>
std::array<const T*, 3> input_heads(const KernelPointers& p, const AttentionShape& shape,
                                    std::size_t first) {
  return kernels::heads_at<const T>(shape, first, [&](std::size_t i) { return p.input<T>(i); });
}
template <class T>
std::array<T*, 3> output_heads(const KernelPointers& p, const AttentionShape& shape) {
  return kernels::heads_at<T>(shape, 0, [&](std::size_t i) { return p.output<T>(i); });
}

// How many masks of samples, heads and queries there are, and which of `all` one of them serves.
struct MaskPart {
  BELFRY_HD MaskPart(std::int64_t step, std::int64_t all, std::int64_t at)
      : first(step == 0 ? 0 : at), end(step == 0 ? all : at + 1) {}
  BELFRY_HD static std::int64_t count(std::int64_t step, std::int64_t all) {
    return step == 0 && all > 0 ? 1 : all;
  }

  std::int64_t first, end;
};

}  // namespace belfry::cuda
