// Attention of the heads that share keys and values, a block of queries by a block of keys at a
// time (Dao et al. 2022). Memory grows with the time, not with its square. One thread.
#pragma once
#include <cstddef>
#include <cstdint>

#include "belfry/ops/attention/attention_shape_impl.h"
#include "belfry/ops/kernels/stored_elements.h"

namespace belfry::kernels {

// The bytes of scratch memory that the functions below take.
template <class T>
std::int64_t attention_workspace(const AttentionShape& shape);
template <class T>
std::int64_t attention_grad_workspace(const AttentionShape& shape);

// Which heads of which sample to compute: all that use `kv_head`, over the first `keys` keys.
struct HeadGroup {
  std::int64_t sample, kv_head, keys;
};

// Whole tensors. log_sums [batch, heads, queries] get, for each query, the logarithm of the sum of
// e^score over the keys that it sees.
template <class T>
struct AttentionTensors {
  const void *q, *k, *v, *mask;
  void* y;
  T* log_sums;
};
template <class T>
void attention_of_group(const AttentionShape& shape, const StoredElements<T>& stored,
                        const AttentionTensors<T>& tensors, const HeadGroup& of,
                        std::byte* workspace);

// Computes dq, dk and dv of the group from the results of attention_of_group(), and adds to d_mask,
// unless it is null.
template <class T>
struct AttentionGradTensors {
  const void *dy, *q, *k, *v, *y, *mask;
  const T* log_sums;
  void *dq, *dk, *dv;
  T* d_mask;
};
template <class T>
void attention_grad_of_group(const AttentionShape& shape, const StoredElements<T>& stored,
                             const AttentionGradTensors<T>& tensors, const HeadGroup& of,
                             std::byte* workspace);

// Kernels of the ops in attention.h and joined_attention.h for hosts, and their references.
KernelRun attention_on_host(KernelPlan& plan);
KernelRun attention_reference(KernelPlan& plan);
KernelRun attention_grad_on_host(KernelPlan& plan);
KernelRun attention_grad_reference(KernelPlan& plan);

}  // namespace belfry::kernels
