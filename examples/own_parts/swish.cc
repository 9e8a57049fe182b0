#include "swish.h"

#include <cmath>

#include "belfry/belfry.h"
using namespace belfry;

namespace {

OutputTypes swish_shape(const ShapeContext& c) {
  c.require_floating(0);
  const double beta = c.options<SwishOptions>().beta;
  c.require(beta > 0 && std::isfinite(beta), "beta must be finite and above 0, not ", beta);
  return {c.type(0)};
}

std::vector<Output> swish_gradient(const Node& node, std::span<const Output> grads) {
  const double beta = node.options<SwishOptions>().beta;
  Output x = node.input(0), s = sigmoid(x * beta);
  return {grads[0] * (s + x * beta * s * (1.0 - s))};
}

KernelRun swish_kernel(KernelPlan& plan) {
  const SwishElement element{plan.options<SwishOptions>().beta};
  return visit_floating(plan.dtype(), [&]<class T>(T) -> KernelRun {
    return [element](const KernelPointers& p) {
      const T* x = p.input<T>(0);
      T* y = p.output<T>();
      for (std::int64_t i = p.begin(); i < p.end(); ++i) y[i] = element(x[i]);
    };
  });
}

}  // namespace

// Element i of y depends only on element i of x. So parts may be computed separately (.split), y
// may overwrite x (.in_place), and each shard of a batch has its own y (.shards). Without .shards a
// device would compute its whole batch at once, and the bits of a training would depend on the
// number of devices.
const Op kSwish{.name = "Swish",
                .inputs = 1,
                .shape = swish_shape,
                .gradient = swish_gradient,
                .split = WorkSplit::kElements,
                .shards = pointwise_shards,
                .in_place = InPlace::kFirst,
                .reference = swish_kernel};

Output swish(Output x, SwishOptions options, At at) {
  return x.graph().add(kSwish, {x}, at, NodeOptions(options)).output();
}
