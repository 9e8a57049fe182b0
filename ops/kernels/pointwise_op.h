// Makes kernels of pointwise ops from functors, for .cpu and .reference:
//
//   .cpu = unary<functors::Relu>, .reference = plain_unary<PlainRelu>
#pragma once
#include <type_traits>

#include "belfry/framework/graph/op.h"
#include "belfry/framework/kernels/pointwise.h"

namespace belfry {

// A functor with options must receive them: its op has separate kernels (ops/dropout.cc).
template <class F>
concept WithoutOptions = std::is_empty_v<F>;

// All inputs are floating point, of one dtype and shape; output 0 is like input 0, with the
// dimensions that other inputs know.
OutputTypes floating_pointwise(const ShapeContext& c);

// Input 0 has numbers to compute with: no bytes or truths.
inline void require_arithmetic(const ShapeContext& c) {
  c.require(c.dtype() != DType::kU8 && c.dtype() != DType::kBool, "no arithmetic on ",
            name_of(c.dtype()), "; cast it");
}

// Calls f(T{}) for f32 f64 i32 i64.
template <class F>
auto visit_numeric(DType dtype, F f) {
  if (dtype == DType::kI32) return f(std::int32_t{});
  if (dtype == DType::kI64) return f(std::int64_t{});
  return visit_floating(dtype, f);
}

// The fast kernel of y = F(x), or y = F(a, b) for equal shapes.
template <WithoutOptions F>
KernelRun unary(KernelPlan& plan) {
  return visit_floating(plan.dtype(), []<class T>(T) -> KernelRun {
    return [](const KernelPointers& p) {
      kernels::map(F{}, p.begin(), p.end(), p.output<T>(), p.input<T>(0));
    };
  });
}
template <WithoutOptions F>
KernelRun binary(KernelPlan& plan) {
  return visit_floating(plan.dtype(), []<class T>(T) -> KernelRun {
    return [](const KernelPointers& p) {
      kernels::map(F{}, p.begin(), p.end(), p.output<T>(), p.input<T>(0), p.input<T>(1));
    };
  });
}

// The same in obvious loops.
template <WithoutOptions F>
KernelRun plain_unary(KernelPlan& plan) {
  return visit_floating(plan.dtype(), []<class T>(T) -> KernelRun {
    return [](const KernelPointers& p) {
      for (std::int64_t i = p.begin(); i < p.end(); ++i) p.output<T>()[i] = F{}(p.input<T>(0)[i]);
    };
  });
}
template <WithoutOptions F>
KernelRun plain_binary(KernelPlan& plan) {
  return visit_floating(plan.dtype(), []<class T>(T) -> KernelRun {
    return [](const KernelPointers& p) {
      for (std::int64_t i = p.begin(); i < p.end(); ++i)
        p.output<T>()[i] = F{}(p.input<T>(0)[i], p.input<T>(1)[i]);
    };
  });
}

}  // namespace belfry
