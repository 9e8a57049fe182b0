#include "belfry/ops/pointwise/sign.h"

#include "belfry/framework/graph/shards.h"
#include "belfry/ops/kernels/pointwise_op.h"
#include "belfry/ops/operand.h"
#include "belfry/ops/pointwise/functors_impl.h"

namespace belfry {
namespace {

OutputTypes abs_shape(const ShapeContext& c) {
  require_arithmetic(c);
  return {c.type(0)};
}

std::vector<Output> abs_gradient(const Node& node, std::span<const Output> grads) {
  return {grads[0] * sign(node.input(0))};
}

std::vector<Output> sign_gradient(const Node&, std::span<const Output>) { return {{}}; }

template <class F>
KernelRun abs_cpu(KernelPlan& plan) {
  return is_floating(plan.dtype()) ? unary<F>(plan) : KernelRun();
}

template <class F>
KernelRun abs_reference(KernelPlan& plan) {
  return visit_numeric(plan.dtype(), []<class T>(T) -> KernelRun {
    return [](const KernelPointers& p) {
      for (std::int64_t i = p.begin(); i < p.end(); ++i) p.output<T>()[i] = F{}(p.input<T>(0)[i]);
    };
  });
}

// Unsigned integers wrap, where the opposite of the smallest integer is not defined.
struct PlainAbs {
  template <class T>
  T operator()(T x) const {
    return x < 0 ? functors::Sub{}(T(0), x) : x + T(0);
  }
};

struct PlainSign {
  template <class T>
  T operator()(T x) const {
    if (x != x) return x;
    return static_cast<T>((x > 0) - (x < 0));
  }
};

}  // namespace

const Op kAbs{.name = "Abs",
              .inputs = 1,
              .shape = abs_shape,
              .gradient = abs_gradient,
              .split = WorkSplit::kElements,
              .shards = pointwise_shards,
              .in_place = InPlace::kFirst,
              .cpu = abs_cpu<functors::Abs>,
              .reference = abs_reference<PlainAbs>};
const Op kSign{.name = "Sign",
               .inputs = 1,
               .shape = abs_shape,
               .gradient = sign_gradient,
               .split = WorkSplit::kElements,
               .shards = pointwise_shards,
               .in_place = InPlace::kFirst,
               .cpu = abs_cpu<functors::Sign>,
               .reference = abs_reference<PlainSign>};

Output abs(Output x, At at) { return x.graph().add(kAbs, {x}, at).output(); }
Output sign(Output x, At at) { return x.graph().add(kSign, {x}, at).output(); }

}  // namespace belfry
