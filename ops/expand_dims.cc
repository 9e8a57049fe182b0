#include "belfry/ops/expand_dims.h"

#include <algorithm>

#include "belfry/framework/base/require.h"
#include "belfry/framework/graph/shards.h"
#include "belfry/framework/graph/stored_options.h"
#include "belfry/ops/kernels/axes.h"

namespace belfry {
namespace {

struct ExpandDimsOptions {
  std::vector<int> axes;  // of the result, in ascending order, not negative
};

struct SqueezeOptions {
  std::vector<int> axes;  // likewise, of x
};

OutputTypes expand_dims_shape(const ShapeContext& c) {
  std::vector<std::int64_t> dims = c.input(0).dims();
  for (const int axis : c.options<ExpandDimsOptions>().axes) {
    c.require(axis >= 0 && axis <= std::ssize(dims), "there is no axis ", axis, " in ", c.input(0));
    dims.insert(dims.begin() + axis, 1);
  }
  return {Shape(dims)};
}

OutputTypes squeeze_shape(const ShapeContext& c) {
  const Shape& x = c.input(0);
  const std::vector<int>& axes = c.options<SqueezeOptions>().axes;
  std::vector<std::int64_t> dims;
  for (std::size_t axis = 0; axis < x.rank(); ++axis) {
    const bool dropped = std::ranges::find(axes, static_cast<int>(axis)) != axes.end();
    c.require(!dropped || x[axis] == 1 || x[axis] == kUnknownSize, "dimension ", axis, " of ", x,
              " has size ", x[axis], ", not 1");
    if (!dropped) dims.push_back(x[axis]);
  }
  return {Shape(dims)};
}

std::vector<Output> expand_dims_gradient(const Node& node, std::span<const Output> grads) {
  return {node.graph()
              .add(kSqueeze, grads, {},
                   NodeOptions(SqueezeOptions{node.options<ExpandDimsOptions>().axes}))
              .output()};
}

std::vector<Output> squeeze_gradient(const Node& node, std::span<const Output> grads) {
  return {node.graph()
              .add(kExpandDims, grads, {},
                   NodeOptions(ExpandDimsOptions{node.options<SqueezeOptions>().axes}))
              .output()};
}

}  // namespace

const Op kExpandDims{.name = "ExpandDims",
                     .inputs = 1,
                     .shape = expand_dims_shape,
                     .gradient = expand_dims_gradient,
                     .shards = reshaped_shards,
                     .alias = true};
const Op kSqueeze{.name = "Squeeze",
                  .inputs = 1,
                  .shape = squeeze_shape,
                  .gradient = squeeze_gradient,
                  .shards = reshaped_shards,
                  .alias = true};
const StoredOptions<ExpandDimsOptions> kStoredExpandDims(kExpandDims);
const StoredOptions<SqueezeOptions> kStoredSqueeze(kSqueeze);

Output expand_dims(Output x, int axis, At at) {
  const std::size_t rank = x.shape().rank() + 1;
  const auto limit = static_cast<int>(rank);
  require(axis >= -limit && axis < limit, "expand_dims (", at.site, "): the result of ", x.type(),
          " has no axis ", axis);
  const ExpandDimsOptions options{{static_cast<int>(from_end(axis, rank))}};
  return x.graph().add(kExpandDims, {x}, at, NodeOptions(options)).output();
}

Output squeeze(Output x, std::vector<int> axes, At at) {
  const Shape& shape = x.shape();
  const auto rank = static_cast<int>(shape.rank());
  require(!axes.empty() || shape.is_fully_known(), "squeeze (", at.site, "): the shape of ",
          x.type(), " is not known; name the axes");
  if (axes.empty())
    for (int axis = 0; axis < rank; ++axis)
      if (shape[static_cast<std::size_t>(axis)] == 1) axes.push_back(axis);
  if (axes.empty()) return x;
  for (int& axis : axes) {
    require(axis >= -rank && axis < rank, "squeeze (", at.site, "): ", x.type(), " has no axis ",
            axis);
    if (axis < 0) axis += rank;
  }
  std::ranges::sort(axes);
  require(std::ranges::adjacent_find(axes) == axes.end(), "squeeze (", at.site,
          "): an axis is there twice");
  return x.graph().add(kSqueeze, {x}, at, NodeOptions(SqueezeOptions{std::move(axes)})).output();
}

}  // namespace belfry
