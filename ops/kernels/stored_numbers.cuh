// Arithmetic on numbers of all types that tensors hold.
#pragma once
#include "belfry/framework/cuda/kernels/pointwise.h"
#include "belfry/ops/kernels/pointwise_op.h"

namespace belfry::cuda {

// Calls f(T{}) for f16 bf16 f32 f64 i32 i64.
template <class F>
auto visit_stored_numeric(DType dtype, const F& f) {
  return kernels::visit_half_or(
      dtype, [](DType other, const F& g) { return visit_numeric(other, g); }, f);
}

// How the two inputs are broadcast.
inline Strides operands(const KernelPlan& plan) {
  return Strides(kernels::Broadcast(plan.input(0).shape.dims(), plan.input(1).shape.dims()));
}

// The kernel of y = F(x).
template <class F>
QueueRun unary_arithmetic(KernelPlan& plan) {
  return visit_stored_numeric(plan.dtype(), []<class T>(T) -> QueueRun {
    return [](const KernelPointers& p, KernelQueue& queue) { map<F, T, 1>(queue, p); };
  });
}

// The kernel of y = F(a, b), whose operands are broadcast.
template <class F>
QueueRun arithmetic(KernelPlan& plan) {
  return visit_stored_numeric(plan.dtype(), [strides = operands(plan)]<class T>(T) -> QueueRun {
    return [strides](const KernelPointers& p, KernelQueue& queue) {
      map_broadcast<T>(queue, p, F{}, strides);
    };
  });
}

}  // namespace belfry::cuda
