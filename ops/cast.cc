#include "belfry/ops/cast.h"

#include "belfry/framework/kernels/simd.h"
#include "belfry/ops/kernels/functors.h"

namespace belfry {
namespace {

OutputTypes cast_shape(const ShapeContext& c) {
  const DType to = c.options<CastOptions>().dtype;
  for (const DType dtype : {c.dtype(0), to})
    c.require(dtype != DType::kF16 && dtype != DType::kBF16, "hosts do not cast ", name_of(dtype));
  return {{c.input(0), to}};
}

std::vector<Output> cast_gradient(const Node& node, std::span<const Output> grads) {
  const DType from = node.input(0).dtype();
  return {grads[0] && is_floating(from) ? cast(grads[0], from) : Output()};
}

template <class To, class From>
BELFRY_KERNEL void convert(const From* x, To* y, std::int64_t n) {
  for (std::int64_t i = 0; i < n; ++i) y[i] = functors::Convert<To>{}(x[i]);
}

KernelRun cast_kernel(KernelPlan& plan) {
  return visit_any(plan.input(0).dtype, [&]<class From>(From) {
    return visit_any(plan.dtype(), []<class To>(To) -> KernelRun {
      return [](const Pointers& p) {
        convert(p.input<From>(0) + p.begin(), p.output<To>() + p.begin(), p.end() - p.begin());
      };
    });
  });
}

}  // namespace

const Op kCast{.name = "Cast",
               .inputs = 1,
               .shape = cast_shape,
               .gradient = cast_gradient,
               .split = Split::kElements,
               .reference = cast_kernel};

Output cast(Output x, DType dtype, At at) {
  if (x.dtype() == dtype) return x;
  return x.graph().add(kCast, {x}, at, Options(CastOptions{dtype})).output();
}

}  // namespace belfry
