#include "belfry/framework/core_ops/state.h"

namespace belfry {
namespace {

OutputTypes variable_shape(const ShapeContext& c) {
  const auto& options = c.options<VariableNodeOptions>();
  return {{options.shape, options.dtype}};
}

std::vector<Output> pass_on(const Node&, std::span<const Output> grads) { return {grads[0]}; }

}  // namespace

const Op kVariable{.name = "Variable",
                   .inputs = 0,
                   .shape = variable_shape,
                   .no_gradient = "it has no inputs",
                   .storage = true};

const Op kRead{
    .name = "Read", .inputs = 1, .shape = same_as_input, .gradient = pass_on, .alias = true};

}  // namespace belfry
