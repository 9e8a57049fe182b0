#include "belfry/ops/exp.h"

#include <cmath>

#include "belfry/framework/graph/shards.h"
#include "belfry/ops/kernels/functors.h"
#include "belfry/ops/kernels/pointwise_op.h"
#include "belfry/ops/operand.h"

namespace belfry {
namespace {

std::vector<Output> exp_gradient(const Node& node, std::span<const Output> grads) {
  return {grads[0] * node.output()};
}

struct PlainExp {
  template <class T>
  T operator()(T x) const {
    return std::exp(x);
  }
};

}  // namespace

const Op kExp{.name = "Exp",
              .inputs = 1,
              .shape = floating_pointwise,
              .gradient = exp_gradient,
              .split = WorkSplit::kElements,
              .shards = pointwise_shards,
              .in_place = InPlace::kFirst,
              .cpu = unary<functors::Exp>,
              .reference = plain_unary<PlainExp>,
              .autocast = Autocast::kFull};

Output exp(Output x, At at) { return x.graph().add(kExp, {x}, at).output(); }

}  // namespace belfry
