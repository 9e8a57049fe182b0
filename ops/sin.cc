#include "belfry/ops/sin.h"

#include <cmath>

#include "belfry/framework/graph/shards.h"
#include "belfry/ops/cos.h"
#include "belfry/ops/kernels/functors.h"
#include "belfry/ops/kernels/pointwise_op.h"
#include "belfry/ops/operand.h"

namespace belfry {
namespace {

std::vector<Output> sin_gradient(const Node& node, std::span<const Output> grads) {
  return {grads[0] * cos(node.input(0))};
}

struct PlainSin {
  template <class T>
  T operator()(T x) const {
    return std::sin(x);
  }
};

}  // namespace

const Op kSin{.name = "Sin",
              .inputs = 1,
              .shape = floating_pointwise,
              .gradient = sin_gradient,
              .split = WorkSplit::kElements,
              .shards = pointwise_shards,
              .in_place = InPlace::kFirst,
              .cpu = unary<functors::Sin>,
              .reference = plain_unary<PlainSin>};

Output sin(Output x, At at) { return x.graph().add(kSin, {x}, at).output(); }

}  // namespace belfry
