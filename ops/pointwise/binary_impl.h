// Kernels of ops of two numbers, which broadcast.
#pragma once
#include "belfry/framework/base/dtype.h"
#include "belfry/ops/kernels/broadcasting.h"
#include "belfry/ops/kernels/pointwise_op.h"
#include "belfry/ops/sum_to.h"

namespace belfry {

// Calls f(T{}) with T of `dtype`, of floating-point types alone or of i32 and i64, too.
enum class Numbers { kFloating, kAll };
template <Numbers numbers, class F>
auto visit_numbers(DType dtype, const F& f) {
  if constexpr (numbers == Numbers::kAll)
    return visit_numeric(dtype, f);
  else
    return visit_floating(dtype, f);
}

template <Numbers numbers>
OutputTypes binary_shape(const ShapeContext& c) {
  c.require_same_dtype();
  if (numbers == Numbers::kFloating) c.require_floating(0);
  require_arithmetic(c);
  return {broadcast_shapes(c, c.input(0), c.input(1))};
}

template <Numbers numbers, class F>
KernelRun broadcast_kernel(KernelPlan& plan) {
  return visit_numbers<numbers>(plan.dtype(), [&]<class T>(T) -> KernelRun {
    const kernels::Broadcast broadcast(plan.input(0).shape.dims(), plan.input(1).shape.dims());
    return [broadcast](const KernelPointers& p) {
      kernels::map_broadcast(F{}, broadcast, p.begin(), p.end(), p.output<T>(), p.input<T>(0),
                             p.input<T>(1));
    };
  });
}

template <Numbers numbers, class F>
KernelRun plain_broadcast_kernel(KernelPlan& plan) {
  return visit_numbers<numbers>(plan.dtype(), [&]<class T>(T) -> KernelRun {
    return [a = plan.input(0).shape, b = plan.input(1).shape,
            out = plan.output().shape](const KernelPointers& p) {
      for (std::int64_t i = p.begin(); i < p.end(); ++i)
        p.output<T>()[i] = F{}(p.input<T>(0)[broadcast_index(i, out, a)],
                               p.input<T>(1)[broadcast_index(i, out, b)]);
    };
  });
}

// The gradient of operand i; `grad` has the shape of the result.
inline Output gradient_of_operand(const Node& node, std::size_t i, Output grad) {
  return sum_to(grad, node.input(i), node.input(1 - i).shape());
}

}  // namespace belfry
