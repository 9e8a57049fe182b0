#include "belfry/framework/graph/state.h"

namespace belfry {
namespace {

OutputTypes variable_shape(const ShapeContext& c) {
  const auto& options = c.options<VariableNodeOptions>();
  return {{options.shape, options.dtype}};
}

}  // namespace

const Op kVariable{.name = "Variable",
                   .inputs = 0,
                   .shape = variable_shape,
                   .no_gradient = "it has no inputs",
                   .storage = true};

const Op kRead{
    .name = "Read", .inputs = 1, .shape = same_as_input, .gradient = same_gradient, .alias = true};

}  // namespace belfry
