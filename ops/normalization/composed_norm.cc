#include "belfry/framework/core_ops/fill.h"
#include "belfry/framework/gradients/gradients.h"
#include "belfry/ops/composed_gradient.h"
#include "belfry/ops/normalization/composed_norm_impl.h"
#include "belfry/ops/operand.h"
#include "belfry/ops/reduce.h"
#include "belfry/ops/sqrt.h"
#include "belfry/ops/square.h"

namespace belfry {

Output composed_norm(Output x, std::vector<int> axes, double epsilon) {
  const Output distance = x - reduce_mean(x, axes, ReducedAxes::kKept);
  return distance / sqrt(reduce_mean(square(distance), axes, ReducedAxes::kKept) + epsilon);
}

std::vector<Output> norm_grad_gradient(const Node& node, std::span<const Output> grads,
                                       const std::function<Output(Output x)>& normalise) {
  return composed_gradient(node, grads, [&](std::span<const Output> inputs) {
    const Output dy = inputs[0], x = inputs[1], gamma = inputs[2];
    Output y = normalise(x) * gamma;
    std::vector<Output> wanted{x, gamma};
    if (node.outputs() > 2) {
      wanted.push_back(fill_like(gamma, 0));  // beta, whose values do not matter
      y = y + wanted.back();
    }
    return gradients(y, wanted, {.initial = {dy}});
  });
}

}  // namespace belfry
