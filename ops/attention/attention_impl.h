// Causal attention of one head, a block of queries by a block of keys at a time (Dao et al. 2022).
// Memory grows with the time, not with its square. One thread.
#pragma once
#include <cstddef>
#include <cstdint>

#include "belfry/ops/kernels/stored_elements.h"

namespace belfry::kernels {

// Tensors [batch, time, heads * head_dim] hold a head's elements of one time side by side.
struct AttentionShape {
  std::int64_t heads, time, head_dim;
  double scale;  // of the products of queries and keys

  std::int64_t width() const { return heads * head_dim; }
  // The offset of element 0 of a head at time 0.
  std::int64_t offset(std::int64_t sample, std::int64_t head) const {
    return sample * time * width() + head * head_dim;
  }
};

// The bytes of scratch memory that the functions below take.
template <class T>
std::int64_t attention_workspace(const AttentionShape& shape);
template <class T>
std::int64_t attention_grad_workspace(const AttentionShape& shape);

// Computes the head at `at` (AttentionShape::offset) of y. log_sums [time] get, for each query, the
// logarithm of the sum of e^score over its keys.
struct AttentionTensors {
  const void *q, *k, *v;
  void* y;
};
template <class T>
void attention_head(const AttentionShape& shape, const StoredElements<T>& stored,
                    const AttentionTensors& tensors, std::int64_t at, T* log_sums,
                    std::byte* workspace);

// Computes the head at `at` of dq, dk and dv from the results of attention_head().
struct AttentionGradTensors {
  const void *dy, *q, *k, *v, *y;
  void *dq, *dk, *dv;
};
template <class T>
void attention_head_grad(const AttentionShape& shape, const StoredElements<T>& stored,
                         const AttentionGradTensors& tensors, std::int64_t at, const T* log_sums,
                         std::byte* workspace);

}  // namespace belfry::kernels
