#include "belfry/framework/core_ops/assign.h"

#include <cstring>

#include "belfry/framework/kernels/plain.h"

namespace belfry {
namespace {

OutputTypes assign_shape(const ShapeContext& c) {
  c.require(c.input(0).compatible(c.input(1)) && c.dtype(0) == c.dtype(1), "the variable is ",
            c.type(0), ", but the value is ", c.type(1));
  return {c.type(0)};
}

// For any type. The value may already be in the variable (pass memory).
KernelRun assign_reference(KernelPlan& plan) {
  const auto size = static_cast<std::int64_t>(size_of(plan.dtype()));
  return [size](const KernelPointers& p) {
    if (p.written<char>(0) == p.input<char>(1)) return;
    const std::int64_t begin = p.begin() * size, end = p.end() * size;
    std::memmove(p.written<char>(0) + begin, p.input<char>(1) + begin,
                 static_cast<std::size_t>(end - begin));
  };
}

template <class Combine>
KernelRun combine_kernel(KernelPlan& plan, Combine combine) {
  return visit_any(plan.dtype(), [&](auto zero) -> KernelRun {
    using T = decltype(zero);
    return [combine](const KernelPointers& p) {
      T* const to = p.written<T>(0);
      const T* const from = p.input<T>(1);
      for (std::int64_t i = p.begin(); i < p.end(); ++i) to[i] = combine(to[i], from[i]);
    };
  });
}

KernelRun assign_add_reference(KernelPlan& plan) {
  return combine_kernel(plan,
                        [](auto old, auto delta) { return kernels::wrapping_add(old, delta); });
}
KernelRun assign_sub_reference(KernelPlan& plan) {
  return combine_kernel(
      plan, [](auto old, auto delta) { return kernels::wrapping_subtract(old, delta); });
}

constexpr const char* kAssignHasNoGradient = "it changes a variable";

}  // namespace

const Op kAssign{.name = "Assign",
                 .inputs = 2,
                 .shape = assign_shape,
                 .no_gradient = kAssignHasNoGradient,
                 .split = WorkSplit::kElements,
                 .writes = 1,
                 .elementwise_input = 1,
                 .fused_update_on_gpus = true,
                 .reference = assign_reference,
                 .half = true};
const Op kAssignAdd{.name = "AssignAdd",
                    .inputs = 2,
                    .shape = assign_shape,
                    .no_gradient = kAssignHasNoGradient,
                    .split = WorkSplit::kElements,
                    .writes = 1,
                    .elementwise_input = 1,
                    .reference = assign_add_reference};
const Op kAssignSub{.name = "AssignSub",
                    .inputs = 2,
                    .shape = assign_shape,
                    .no_gradient = kAssignHasNoGradient,
                    .split = WorkSplit::kElements,
                    .writes = 1,
                    .reference = assign_sub_reference};

Node& assign(Variable variable, Output value, At at) {
  return value.graph().add(kAssign, {variable.ref(), value}, at);
}
Node& assign_add(Variable variable, Output delta, At at) {
  return delta.graph().add(kAssignAdd, {variable.ref(), delta}, at);
}
Node& assign_sub(Variable variable, Output delta, At at) {
  return delta.graph().add(kAssignSub, {variable.ref(), delta}, at);
}

}  // namespace belfry
