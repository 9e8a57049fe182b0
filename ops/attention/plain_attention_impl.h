// The plain kernels of causal attention: query by query, in f64. They take the arguments of
// attention_impl.h without the scratch memory.
#pragma once
#include "belfry/ops/attention/attention_impl.h"

namespace belfry::kernels {

template <class T>
void plain_attention_head(const AttentionShape& shape, const StoredElements<T>& stored,
                          const AttentionTensors& tensors, std::int64_t at, T* log_sums,
                          std::byte* unused);
template <class T>
void plain_attention_head_grad(const AttentionShape& shape, const StoredElements<T>& stored,
                               const AttentionGradTensors& tensors, std::int64_t at,
                               const T* log_sums, std::byte* unused);

}  // namespace belfry::kernels
