#include "belfry/ops/square.h"

#include "belfry/framework/graph/shards.h"
#include "belfry/ops/kernels/functors.h"
#include "belfry/ops/kernels/pointwise_op.h"
#include "belfry/ops/operand.h"

namespace belfry {
namespace {

std::vector<Output> square_gradient(const Node& node, std::span<const Output> grads) {
  return {grads[0] * (2.0 * node.input(0))};
}

struct PlainSquare {
  template <class T>
  T operator()(T x) const {
    return x * x;
  }
};

}  // namespace

const Op kSquare{.name = "Square",
                 .inputs = 1,
                 .shape = floating_pointwise,
                 .gradient = square_gradient,
                 .split = WorkSplit::kElements,
                 .shards = pointwise_shards,
                 .in_place = InPlace::kFirst,
                 .cpu = unary<functors::Square>,
                 .reference = plain_unary<PlainSquare>,
                 .autocast = Autocast::kFull};

Output square(Output x, At at) { return x.graph().add(kSquare, {x}, at).output(); }

}  // namespace belfry
