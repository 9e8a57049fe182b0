#include "belfry/ops/arithmetic.h"

#include <type_traits>

#include "belfry/framework/base/text.h"
#include "belfry/framework/graph/shards.h"
#include "belfry/ops/kernels/broadcasting.h"
#include "belfry/ops/kernels/functors.h"
#include "belfry/ops/kernels/pointwise_op.h"
#include "belfry/ops/neg.h"
#include "belfry/ops/sum_to.h"

namespace belfry {
namespace {

OutputTypes arithmetic_shape(const ShapeContext& c) {
  c.require_same_dtype();
  c.require(c.dtype() != DType::kU8 && c.dtype() != DType::kBool, "no arithmetic on ",
            name_of(c.dtype()), "; cast it");
  return {broadcast_shapes(c, c.input(0), c.input(1))};
}

template <class F>
KernelRun arithmetic(KernelPlan& plan) {
  return visit_numeric(plan.dtype(), [&]<class T>(T) -> KernelRun {
    const kernels::Broadcast broadcast(plan.input(0).shape.dims(), plan.input(1).shape.dims());
    return [broadcast](const KernelPointers& p) {
      kernels::map_broadcast(F{}, broadcast, p.begin(), p.end(), p.output<T>(), p.input<T>(0),
                             p.input<T>(1));
    };
  });
}

template <class F>
KernelRun plain_arithmetic(KernelPlan& plan) {
  return visit_numeric(plan.dtype(), [&]<class T>(T) -> KernelRun {
    return [a = plan.input(0).shape, b = plan.input(1).shape, out = plan.output().shape,
            f = F(plan)](const KernelPointers& p) {
      for (std::int64_t i = p.begin(); i < p.end(); ++i)
        p.output<T>()[i] =
            f(p.input<T>(0)[broadcast_index(i, out, a)], p.input<T>(1)[broadcast_index(i, out, b)]);
    };
  });
}

// Integers take the fast path's detour through unsigned ones, because C++ does not define signed
// overflow.
template <class Wrapped>
struct Plain : Wrapped {
  explicit Plain(const KernelPlan&) {}
};

struct PlainDiv {
  explicit PlainDiv(const KernelPlan& plan) : node(plan.node()) {}
  template <class T>
  T operator()(T a, T b) const {
    if constexpr (std::is_integral_v<T>) {
      if (b == 0) throw InvalidArgument(cat(node.describe(), ": division by 0"));
      if (b == -1) return functors::Sub{}(T(0), a);  // the smallest integer has no opposite
    }
    return a / b;
  }
  const Node& node;
};

KernelRun div_cpu(KernelPlan& plan) {
  return is_floating(plan.dtype()) ? arithmetic<functors::Div>(plan) : KernelRun();
}

// The gradient of operand i; `grad` has the shape of the result.
Output for_operand(const Node& node, std::size_t i, Output grad) {
  return sum_to(grad, node.input(i), node.input(1 - i).shape());
}

std::vector<Output> add_gradient(const Node& node, std::span<const Output> grads) {
  return {for_operand(node, 0, grads[0]), for_operand(node, 1, grads[0])};
}

std::vector<Output> sub_gradient(const Node& node, std::span<const Output> grads) {
  return {for_operand(node, 0, grads[0]), neg(for_operand(node, 1, grads[0]))};
}

std::vector<Output> mul_gradient(const Node& node, std::span<const Output> grads) {
  return {for_operand(node, 0, mul(grads[0], node.input(1))),
          for_operand(node, 1, mul(grads[0], node.input(0)))};
}

// d(a / b) = da / b - (a / b) db / b.
std::vector<Output> div_gradient(const Node& node, std::span<const Output> grads) {
  const Output da = div(grads[0], node.input(1));
  return {for_operand(node, 0, da), neg(for_operand(node, 1, mul(da, node.output())))};
}

}  // namespace

const Op kAdd{.name = "Add",
              .inputs = 2,
              .shape = arithmetic_shape,
              .gradient = add_gradient,
              .split = WorkSplit::kElements,
              .shards = linear_shards,
              .in_place = InPlace::kAny,
              .cpu = arithmetic<functors::Add>,
              .reference = plain_arithmetic<Plain<functors::Add>>};
const Op kSub{.name = "Sub",
              .inputs = 2,
              .shape = arithmetic_shape,
              .gradient = sub_gradient,
              .split = WorkSplit::kElements,
              .shards = linear_shards,
              .in_place = InPlace::kAny,
              .cpu = arithmetic<functors::Sub>,
              .reference = plain_arithmetic<Plain<functors::Sub>>};
const Op kMul{.name = "Mul",
              .inputs = 2,
              .shape = arithmetic_shape,
              .gradient = mul_gradient,
              .split = WorkSplit::kElements,
              .shards = product_shards,
              .in_place = InPlace::kAny,
              .cpu = arithmetic<functors::Mul>,
              .reference = plain_arithmetic<Plain<functors::Mul>>};
const Op kDiv{.name = "Div",
              .inputs = 2,
              .shape = arithmetic_shape,
              .gradient = div_gradient,
              .split = WorkSplit::kElements,
              .shards = quotient_shards,
              .in_place = InPlace::kAny,
              .cpu = div_cpu,
              .reference = plain_arithmetic<PlainDiv>};

Output add(Output a, Output b, At at) { return a.graph().add(kAdd, {a, b}, at).output(); }
Output sub(Output a, Output b, At at) { return a.graph().add(kSub, {a, b}, at).output(); }
Output mul(Output a, Output b, At at) { return a.graph().add(kMul, {a, b}, at).output(); }
Output div(Output a, Output b, At at) { return a.graph().add(kDiv, {a, b}, at).output(); }

}  // namespace belfry
