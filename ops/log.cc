#include "belfry/ops/log.h"

#include <cmath>

#include "belfry/framework/graph/shards.h"
#include "belfry/ops/kernels/functors.h"
#include "belfry/ops/kernels/pointwise_op.h"
#include "belfry/ops/operand.h"

namespace belfry {
namespace {

std::vector<Output> log_gradient(const Node& node, std::span<const Output> grads) {
  return {grads[0] / node.input(0)};
}

struct PlainLog {
  template <class T>
  T operator()(T x) const {
    return std::log(x);
  }
};

}  // namespace

const Op kLog{.name = "Log",
              .inputs = 1,
              .shape = floating_pointwise,
              .gradient = log_gradient,
              .split = WorkSplit::kElements,
              .shards = pointwise_shards,
              .in_place = InPlace::kFirst,
              .cpu = unary<functors::Log>,
              .reference = plain_unary<PlainLog>,
              .autocast = Autocast::kFull};

Output log(Output x, At at) { return x.graph().add(kLog, {x}, at).output(); }

}  // namespace belfry
