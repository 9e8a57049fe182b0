#include "belfry/ops/relu.h"

#include <cmath>

#include "belfry/framework/graph/shards.h"
#include "belfry/ops/bias_activation.h"
#include "belfry/ops/kernels/functors.h"
#include "belfry/ops/kernels/pointwise_op.h"

namespace belfry {
namespace {

std::vector<Output> relu_gradient(const Node& node, std::span<const Output> grads) {
  return {relu_grad(grads[0], node.output())};
}

std::vector<Output> relu_grad_gradient(const Node& node, std::span<const Output> grads) {
  return {relu_grad(grads[0], node.input(1)), {}};
}

struct PlainRelu {
  template <class T>
  T operator()(T x) const {
    return std::isnan(x) ? x : std::fmax(x, T(0));
  }
};

struct PlainReluGrad {
  template <class T>
  T operator()(T dy, T y) const {
    if (std::isnan(dy) || y > 0) return dy;
    return std::isnan(y) ? y : T(0);
  }
};

}  // namespace

const Op kRelu{.name = "Relu",
               .inputs = 1,
               .shape = floating_pointwise,
               .gradient = relu_gradient,
               .split = WorkSplit::kElements,
               .shards = pointwise_shards,
               .fuse = fuse_bias,
               .in_place = InPlace::kFirst,
               .cpu = unary<functors::Relu>,
               .reference = plain_unary<PlainRelu>};
const Op kReluGrad{.name = "ReluGrad",
                   .inputs = 2,
                   .shape = floating_pointwise,
                   .gradient = relu_grad_gradient,
                   .split = WorkSplit::kElements,
                   .shards = pointwise_shards,
                   .fuse = fuse_bias_gradient,
                   .in_place = InPlace::kAny,
                   .cpu = binary<functors::ReluGrad>,
                   .reference = plain_binary<PlainReluGrad>};

Output relu(Output x, At at) { return x.graph().add(kRelu, {x}, at).output(); }

Output relu_grad(Output dy, Output y, At at) {
  return dy.graph().add(kReluGrad, {dy, y}, at).output();
}

}  // namespace belfry
