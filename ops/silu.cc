#include "belfry/ops/silu.h"

#include <cmath>

#include "belfry/framework/graph/shards.h"
#include "belfry/ops/bias_activation.h"
#include "belfry/ops/kernels/functors.h"
#include "belfry/ops/kernels/pointwise_op.h"
#include "belfry/ops/operand.h"
#include "belfry/ops/sigmoid.h"

namespace belfry {
namespace {

Output silu_grad(Output dy, Output x) { return dy.graph().add(kSiluGrad, {dy, x}).output(); }

std::vector<Output> silu_gradient(const Node& node, std::span<const Output> grads) {
  return {silu_grad(grads[0], node.input(0))};
}

// The second derivative is s' (2 + x (1 - 2 s)), where s is the sigmoid and s' = s (1 - s).
std::vector<Output> silu_grad_gradient(const Node& node, std::span<const Output> grads) {
  const Output dy = node.input(0), x = node.input(1), s = sigmoid(x);
  const Output second = s * (1.0 - s) * (2.0 + x * (1.0 - 2.0 * s));
  return {silu_grad(grads[0], x), second * dy * grads[0]};
}

struct PlainSilu {
  template <class T>
  T operator()(T x) const {
    return x / (1 + std::exp(-x));
  }
};

struct PlainSiluGrad {
  template <class T>
  T operator()(T dy, T x) const {
    const T s = 1 / (1 + std::exp(-x));
    return dy * (s + x * s * (1 - s));
  }
};

}  // namespace

const Op kSilu{.name = "Silu",
               .inputs = 1,
               .shape = floating_pointwise,
               .gradient = silu_gradient,
               .split = WorkSplit::kElements,
               .shards = pointwise_shards,
               .fuse = fuse_bias,
               .in_place = InPlace::kFirst,
               .cpu = unary<functors::Silu>,
               .reference = plain_unary<PlainSilu>};
const Op kSiluGrad{.name = "SiluGrad",
                   .inputs = 2,
                   .shape = floating_pointwise,
                   .gradient = silu_grad_gradient,
                   .split = WorkSplit::kElements,
                   .shards = pointwise_shards,
                   .fuse = fuse_bias_gradient,
                   .in_place = InPlace::kAny,
                   .cpu = binary<functors::SiluGrad>,
                   .reference = plain_binary<PlainSiluGrad>};

Output silu(Output x, At at) { return x.graph().add(kSilu, {x}, at).output(); }

}  // namespace belfry
