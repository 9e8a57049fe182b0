#include "belfry/ops/arithmetic.h"

#include <type_traits>

#include "belfry/framework/base/log.h"
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
  require_arithmetic(c);
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

namespace {

// Whether `column` is [n,1] and `row` is [n]: mostly one number per sample each, of which the wrong
// pairs would meet. n is more than 1, or unknown as the size of a batch.
bool mixes_samples(const Shape& column, const Shape& row) {
  return column.rank() == 2 && row.rank() == 1 && column[1] == 1 && column[0] == row[0] &&
         row[0] != 1;
}

void warn_of_mixed_samples(const Node& node) {
  const Shape &a = node.input(0).shape(), &b = node.input(1).shape();
  if (!mixes_samples(a, b) && !mixes_samples(b, a)) return;
  const std::string text =
      cat(node.describe(), ": shapes ", a, " and ", b, " give ", node.output().shape(),
          ", each of one with all of the other; reshape one to the shape of the other, or, if that "
          "is meant, the vector to ",
          Shape{1, a.rank() == 1 ? a[0] : b[0]});
  if (first_time_logged(cat("mixed samples: ", node.origin().site))) log_warning(text);
}

Output arithmetic_node(const Op& op, Output a, Output b, At at) {
  const Node& node = a.graph().add(op, {a, b}, at);
  warn_of_mixed_samples(node);
  return node.output();
}

}  // namespace

Output add(Output a, Output b, At at) { return arithmetic_node(kAdd, a, b, at); }
Output sub(Output a, Output b, At at) { return arithmetic_node(kSub, a, b, at); }
Output mul(Output a, Output b, At at) { return arithmetic_node(kMul, a, b, at); }
Output div(Output a, Output b, At at) { return arithmetic_node(kDiv, a, b, at); }

}  // namespace belfry
