#include "belfry/ops/cos.h"

#include <cmath>

#include "belfry/framework/graph/shards.h"
#include "belfry/ops/kernels/functors.h"
#include "belfry/ops/kernels/pointwise_op.h"
#include "belfry/ops/operand.h"
#include "belfry/ops/sin.h"

namespace belfry {
namespace {

std::vector<Output> cos_gradient(const Node& node, std::span<const Output> grads) {
  return {-(grads[0] * sin(node.input(0)))};
}

struct PlainCos {
  template <class T>
  T operator()(T x) const {
    return std::cos(x);
  }
};

}  // namespace

const Op kCos{.name = "Cos",
              .inputs = 1,
              .shape = floating_pointwise,
              .gradient = cos_gradient,
              .split = WorkSplit::kElements,
              .shards = pointwise_shards,
              .in_place = InPlace::kFirst,
              .cpu = unary<functors::Cos>,
              .reference = plain_unary<PlainCos>};

Output cos(Output x, At at) { return x.graph().add(kCos, {x}, at).output(); }

}  // namespace belfry
