#include "belfry/ops/pointwise/near_zero.h"

#include <cmath>
#include <numbers>

#include "belfry/framework/graph/shards.h"
#include "belfry/ops/exp.h"
#include "belfry/ops/kernels/pointwise_op.h"
#include "belfry/ops/operand.h"
#include "belfry/ops/pointwise/functors_impl.h"
#include "belfry/ops/square.h"

namespace belfry {
namespace {

std::vector<Output> log1p_gradient(const Node& node, std::span<const Output> grads) {
  return {grads[0] / (1.0 + node.input(0))};
}

std::vector<Output> expm1_gradient(const Node& node, std::span<const Output> grads) {
  return {grads[0] * (node.output() + 1.0)};
}

std::vector<Output> erf_gradient(const Node& node, std::span<const Output> grads) {
  return {grads[0] * (exp(-square(node.input(0))) * (2 * std::numbers::inv_sqrtpi))};
}

struct PlainLog1p {
  template <class T>
  T operator()(T x) const {
    return std::log1p(x);
  }
};
struct PlainExpm1 {
  template <class T>
  T operator()(T x) const {
    return std::expm1(x);
  }
};
struct PlainErf {
  template <class T>
  T operator()(T x) const {
    return std::erf(x);
  }
};

}  // namespace

const Op kLog1p{.name = "Log1p",
                .inputs = 1,
                .shape = floating_pointwise,
                .gradient = log1p_gradient,
                .split = WorkSplit::kElements,
                .shards = pointwise_shards,
                .in_place = InPlace::kFirst,
                .cpu = unary<functors::Log1p>,
                .reference = plain_unary<PlainLog1p>,
                .autocast = Autocast::kFull};
const Op kExpm1{.name = "Expm1",
                .inputs = 1,
                .shape = floating_pointwise,
                .gradient = expm1_gradient,
                .split = WorkSplit::kElements,
                .shards = pointwise_shards,
                .in_place = InPlace::kFirst,
                .cpu = unary<functors::Expm1>,
                .reference = plain_unary<PlainExpm1>,
                .autocast = Autocast::kFull};
const Op kErf{.name = "Erf",
              .inputs = 1,
              .shape = floating_pointwise,
              .gradient = erf_gradient,
              .split = WorkSplit::kElements,
              .shards = pointwise_shards,
              .in_place = InPlace::kFirst,
              .cpu = unary<functors::Erf>,
              .reference = plain_unary<PlainErf>};

Output log1p(Output x, At at) { return x.graph().add(kLog1p, {x}, at).output(); }
Output expm1(Output x, At at) { return x.graph().add(kExpm1, {x}, at).output(); }
Output erf(Output x, At at) { return x.graph().add(kErf, {x}, at).output(); }

}  // namespace belfry
