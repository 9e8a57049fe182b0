// The plain kernels of attention: query by query, in f64. They take the arguments of
// attention_impl.h without the scratch memory.
#pragma once
#include "belfry/ops/attention/attention_impl.h"

namespace belfry::kernels {

template <class T>
void plain_attention_of_group(const AttentionShape& shape, const StoredElements<T>& stored,
                              const AttentionTensors<T>& tensors, const HeadGroup& of,
                              std::byte* unused);
template <class T>
void plain_attention_grad_of_group(const AttentionShape& shape, const StoredElements<T>& stored,
                                   const AttentionGradTensors<T>& tensors, const HeadGroup& of,
                                   std::byte* unused);

}  // namespace belfry::kernels
