#include "belfry/ops/composed_gradient.h"

#include "belfry/framework/core_ops/identity.h"
#include "belfry/framework/gradients/gradients.h"

namespace belfry {

std::vector<Output> composed_gradient(
    const Node& node, std::span<const Output> grads,
    const std::function<std::vector<Output>(std::span<const Output> inputs)>& compose) {
  // An input may be there twice, or depend on another one: that is for others to differentiate.
  std::vector<Output> inputs;
  for (const Output& input : node.inputs()) inputs.push_back(identity(input));
  const std::vector<Output> outputs = compose(inputs);
  std::vector<Output> ys, initial;
  for (std::size_t i = 0; i < grads.size(); ++i) {
    if (!grads[i]) continue;
    ys.push_back(outputs[i]);
    initial.push_back(grads[i]);
  }
  return gradients(ys, inputs, {.initial = std::move(initial)});
}

}  // namespace belfry
