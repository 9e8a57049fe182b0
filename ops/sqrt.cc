#include "belfry/ops/sqrt.h"

#include <cmath>

#include "belfry/framework/graph/shards.h"
#include "belfry/ops/kernels/functors.h"
#include "belfry/ops/kernels/pointwise_op.h"
#include "belfry/ops/operand.h"

namespace belfry {
namespace {

std::vector<Output> sqrt_gradient(const Node& node, std::span<const Output> grads) {
  return {grads[0] * 0.5 / node.output()};
}

struct PlainSqrt {
  template <class T>
  T operator()(T x) const {
    return std::sqrt(x);
  }
};

}  // namespace

const Op kSqrt{.name = "Sqrt",
               .inputs = 1,
               .shape = floating_pointwise,
               .gradient = sqrt_gradient,
               .split = WorkSplit::kElements,
               .shards = pointwise_shards,
               .in_place = InPlace::kFirst,
               .cpu = unary<functors::Sqrt>,
               .reference = plain_unary<PlainSqrt>,
               .autocast = Autocast::kFull};

Output sqrt(Output x, At at) { return x.graph().add(kSqrt, {x}, at).output(); }

}  // namespace belfry
