#include "belfry/ops/tanh.h"

#include <cmath>

#include "belfry/framework/graph/shards.h"
#include "belfry/ops/kernels/functors.h"
#include "belfry/ops/kernels/pointwise_op.h"
#include "belfry/ops/operand.h"

namespace belfry {
namespace {

std::vector<Output> tanh_gradient(const Node& node, std::span<const Output> grads) {
  return {tanh_grad(grads[0], node.output())};
}

std::vector<Output> tanh_grad_gradient(const Node& node, std::span<const Output> grads) {
  const Output dy = node.input(0), y = node.input(1);
  return {tanh_grad(grads[0], y), -2.0 * y * dy * grads[0]};
}

struct PlainTanh {
  template <class T>
  T operator()(T x) const {
    return std::tanh(x);
  }
};

struct PlainTanhGrad {
  template <class T>
  T operator()(T dy, T y) const {
    return dy * (1 - y * y);
  }
};

}  // namespace

const Op kTanh{.name = "Tanh",
               .inputs = 1,
               .shape = floating_pointwise,
               .gradient = tanh_gradient,
               .split = WorkSplit::kElements,
               .shards = pointwise_shards,
               .in_place = InPlace::kFirst,
               .cpu = unary<functors::Tanh>,
               .reference = plain_unary<PlainTanh>};
const Op kTanhGrad{.name = "TanhGrad",
                   .inputs = 2,
                   .shape = floating_pointwise,
                   .gradient = tanh_grad_gradient,
                   .split = WorkSplit::kElements,
                   .shards = pointwise_shards,
                   .in_place = InPlace::kAny,
                   .cpu = binary<functors::TanhGrad>,
                   .reference = plain_binary<PlainTanhGrad>};

Output tanh(Output x, At at) { return x.graph().add(kTanh, {x}, at).output(); }

Output tanh_grad(Output dy, Output y, At at) {
  return dy.graph().add(kTanhGrad, {dy, y}, at).output();
}

}  // namespace belfry
