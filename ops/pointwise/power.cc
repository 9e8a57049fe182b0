#include "belfry/ops/pointwise/power.h"

#include <cmath>
#include <optional>

#include "belfry/framework/core_ops/constant.h"
#include "belfry/framework/core_ops/fill.h"
#include "belfry/framework/graph/shards.h"
#include "belfry/ops/arithmetic.h"
#include "belfry/ops/log.h"
#include "belfry/ops/pointwise/binary_impl.h"
#include "belfry/ops/pointwise/comparisons.h"
#include "belfry/ops/pointwise/functors_impl.h"
#include "belfry/ops/pointwise/where.h"
#include "belfry/ops/sqrt.h"
#include "belfry/ops/square.h"

namespace belfry {
namespace {

// y of a node x^y where it is a number of the model.
std::optional<double> fixed_exponent(Output y) {
  if (&y.node().op() != &kConst || y.shape().rank() != 0 || is_half(y.dtype())) return {};
  const Tensor& value = y.node().options<ConstantOptions>().value;
  return y.dtype() == DType::kF32 ? value.data<float>()[0] : value.data<double>()[0];
}

// dx = y x^(y - 1) g.
Output gradient_of_base(Output x, Output y, Output g) {
  const std::optional<double> exponent = fixed_exponent(y);
  if (exponent && *exponent != 0) return g * (*exponent * pow(x, *exponent - 1));
  return where(equal(y, 0.0), 0.0, g * (y * pow(x, y - 1.0)));
}

// dy = x^y log(x) g.
Output gradient_of_exponent(const Node& node, Output g) {
  const Output x = node.input(0), y = node.input(1);
  const Output vanishes = logical_and(equal(x, 0.0), greater_equal(y, 0.0));
  return where(vanishes, 0.0, g * (node.output() * log(x)));
}

std::vector<Output> pow_gradient(const Node& node, std::span<const Output> grads) {
  const Output x = node.input(0), y = node.input(1), g = grads[0];
  return {gradient_of_operand(node, 0, gradient_of_base(x, y, g)),
          gradient_of_operand(node, 1, gradient_of_exponent(node, g))};
}

struct PlainPow {
  template <class T>
  T operator()(T x, T y) const {
    return std::pow(x, y);
  }
};

// x^y by ops that are faster and have simpler gradients; empty if there are none.
Output simple_power(Output x, double y, const At& at) {
  if (y == 0) return fill_like(x, 1, at);
  if (y == 1) return x;
  if (!is_floating(x.dtype())) return {};
  if (y == 2) return square(x, at);
  if (y == 3) return mul(square(x, at.site), x, at);
  if (y == 4) return square(square(x, at.site), at);
  if (y == 0.5) return sqrt(x, at);
  if (y == -1) return div(constant(x.graph(), 1, x.dtype(), at.site), x, at);
  return {};
}

}  // namespace

const Op kPow{.name = "Pow",
              .inputs = 2,
              .shape = binary_shape<Numbers::kFloating>,
              .gradient = pow_gradient,
              .split = WorkSplit::kElements,
              .shards = pointwise_shards,
              .in_place = InPlace::kAny,
              .cpu = broadcast_kernel<Numbers::kFloating, functors::Pow>,
              .reference = plain_broadcast_kernel<Numbers::kFloating, PlainPow>,
              .autocast = Autocast::kFull};

Output pow(Operand x, Operand y, At at) {
  const Output base = x.beside(y);
  if (!y.output())
    if (const Output simple = simple_power(base, y.scalar(), at)) return simple;
  return base.graph().add(kPow, {base, y.beside(x)}, at).output();
}

}  // namespace belfry
