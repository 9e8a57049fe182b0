#include "belfry/framework/core_ops/placeholder.h"

namespace belfry {
namespace {

struct PlaceholderOptions {
  Shape shape;
  DType dtype = DType::kF32;
};

OutputTypes placeholder_shape(const ShapeContext& c) {
  const auto& options = c.options<PlaceholderOptions>();
  return {{options.shape, options.dtype}};
}

}  // namespace

const Op kPlaceholder{.name = "Placeholder",
                      .inputs = 0,
                      .shape = placeholder_shape,
                      .no_gradient = "it has no inputs",
                      .storage = true};

Output placeholder(Graph& graph, std::string_view name, DType dtype, Shape shape, At at) {
  return graph
      .add(kPlaceholder, {}, At(name, at.site),
           NodeOptions(PlaceholderOptions{std::move(shape), dtype}))
      .output();
}

}  // namespace belfry
