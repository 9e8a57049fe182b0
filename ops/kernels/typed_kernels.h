// Makes kernels of floating-point ops from code written once for all types.
#pragma once
#include <utility>

#include "belfry/framework/graph/op.h"

namespace belfry {

// The kernel that calls run(T{}, pointers), where T is the type of the node.
template <class Run>
KernelRun typed_kernel(const KernelPlan& plan, Run run) {
  return visit_floating(plan.dtype(), [&]<class T>(T) -> KernelRun {
    return [run = std::move(run)](const KernelPointers& p) { run(T{}, p); };
  });
}

// The kernel that computes each row of the last axis separately: run(x, n, y) for one input, and
// run(a, b, n, y) for two, whose rows have n elements. The op is split by dimension 0.
template <int inputs, class Run>
KernelRun row_kernel(const KernelPlan& plan, Run run) {
  static_assert(inputs == 1 || inputs == 2);
  const Shape& shape = plan.output().shape;
  const std::int64_t n = shape.back(), all = shape.product(1, shape.rank());
  return typed_kernel(plan, [=]<class T>(T, const KernelPointers& p) {
    if (n == 0) return;
    for (std::int64_t at = p.begin() * all; at < p.end() * all; at += n) {
      if constexpr (inputs == 1)
        run(p.input<T>(0) + at, n, p.output<T>() + at);
      else
        run(p.input<T>(0) + at, p.input<T>(1) + at, n, p.output<T>() + at);
    }
  });
}

}  // namespace belfry
