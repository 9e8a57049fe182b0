#include "belfry/ops/sigmoid_cross_entropy.h"

#include <cmath>

#include "belfry/framework/graph/shards.h"
#include "belfry/ops/kernels/functors.h"
#include "belfry/ops/kernels/pointwise_op.h"
#include "belfry/ops/operand.h"
#include "belfry/ops/sigmoid.h"

namespace belfry {
namespace {

std::vector<Output> sigmoid_loss_gradient(const Node& node, std::span<const Output> grads) {
  const Output x = node.input(0), z = node.input(1), dy = grads[0];
  return {dy * (sigmoid(x) - z), -(dy * x)};
}

struct PlainSigmoidLoss {
  template <class T>
  T operator()(T x, T z) const {
    return std::isnan(x) ? x : std::fmax(x, T(0)) - x * z + std::log1p(std::exp(-std::fabs(x)));
  }
};

}  // namespace

const Op kSigmoidCrossEntropy{.name = "SigmoidCrossEntropy",
                              .inputs = 2,
                              .shape = floating_pointwise,
                              .gradient = sigmoid_loss_gradient,
                              .split = WorkSplit::kElements,
                              .shards = pointwise_shards,
                              .in_place = InPlace::kAny,
                              .cpu = binary<functors::SigmoidCrossEntropy>,
                              .reference = plain_binary<PlainSigmoidLoss>,
                              .autocast = Autocast::kFull};

Output sigmoid_cross_entropy(Output logits, Output targets, At at) {
  return logits.graph().add(kSigmoidCrossEntropy, {logits, targets}, at).output();
}

}  // namespace belfry
