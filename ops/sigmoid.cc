#include "belfry/ops/sigmoid.h"

#include <cmath>

#include "belfry/framework/graph/shards.h"
#include "belfry/ops/kernels/functors.h"
#include "belfry/ops/kernels/pointwise_op.h"
#include "belfry/ops/operand.h"

namespace belfry {
namespace {

std::vector<Output> sigmoid_gradient(const Node& node, std::span<const Output> grads) {
  return {sigmoid_grad(grads[0], node.output())};
}

std::vector<Output> sigmoid_grad_gradient(const Node& node, std::span<const Output> grads) {
  const Output dy = node.input(0), y = node.input(1);
  return {sigmoid_grad(grads[0], y), (1.0 - 2.0 * y) * dy * grads[0]};
}

struct PlainSigmoid {
  template <class T>
  T operator()(T x) const {
    // Avoids overflow on either side.
    return x >= 0 ? 1 / (1 + std::exp(-x)) : std::exp(x) / (1 + std::exp(x));
  }
};

struct PlainSigmoidGrad {
  template <class T>
  T operator()(T dy, T y) const {
    return dy * y * (1 - y);
  }
};

}  // namespace

const Op kSigmoid{.name = "Sigmoid",
                  .inputs = 1,
                  .shape = floating_pointwise,
                  .gradient = sigmoid_gradient,
                  .split = WorkSplit::kElements,
                  .shards = pointwise_shards,
                  .in_place = InPlace::kFirst,
                  .cpu = unary<functors::Sigmoid>,
                  .reference = plain_unary<PlainSigmoid>};
const Op kSigmoidGrad{.name = "SigmoidGrad",
                      .inputs = 2,
                      .shape = floating_pointwise,
                      .gradient = sigmoid_grad_gradient,
                      .split = WorkSplit::kElements,
                      .shards = pointwise_shards,
                      .in_place = InPlace::kAny,
                      .cpu = binary<functors::SigmoidGrad>,
                      .reference = plain_binary<PlainSigmoidGrad>};

Output sigmoid(Output x, At at) { return x.graph().add(kSigmoid, {x}, at).output(); }

Output sigmoid_grad(Output dy, Output y, At at) {
  return dy.graph().add(kSigmoidGrad, {dy, y}, at).output();
}

}  // namespace belfry
