#include "belfry/ops/reshape.h"

#include <algorithm>

#include "belfry/framework/graph/shards.h"
#include "belfry/framework/graph/stored_options.h"

namespace belfry {
namespace {

struct ReshapeOptions {
  Shape shape;
};

// `shape` with its one unknown dimension computed from `elements`.
Shape completed(const ShapeContext& c, Shape shape, std::int64_t elements) {
  std::vector<std::int64_t> dims = shape.dims();
  const auto open = std::ranges::find(dims, kUnknownSize);
  if (open != dims.end()) *open = 1;
  const std::int64_t rest = Shape(dims).elements();
  const bool fits = open == dims.end() ? rest == elements : rest > 0 && elements % rest == 0;
  c.require(fits, "cannot reshape ", c.input(0), " to ", shape);
  if (open != dims.end()) *open = elements / rest;
  return Shape(dims);
}

OutputTypes reshape_shape(const ShapeContext& c) {
  const Shape& shape = c.options<ReshapeOptions>().shape;
  c.require(std::ranges::count(shape.dims(), kUnknownSize) <= 1, "the new shape ", shape,
            " has more than one unknown dimension");
  c.require(std::ranges::all_of(shape.dims(), [](auto d) { return d >= 0 || d == kUnknownSize; }),
            "the new shape ", shape, " has a negative dimension");
  if (!c.input(0).is_fully_known()) return {shape};
  return {completed(c, shape, c.input(0).elements())};
}

OutputTypes reshape_like_shape(const ShapeContext& c) {
  if (c.input(0).is_fully_known() && c.input(1).is_fully_known())
    completed(c, c.input(1), c.input(0).elements());
  return {c.input(1)};
}

OutputTypes flatten_shape(const ShapeContext& c) {
  const Shape& x = c.input(0);
  c.require(x.rank() >= 1, "a scalar has no dimension 0 to keep");
  const std::vector<std::int64_t> dims = x.dims();
  return {Shape{x[0], Shape(std::span(dims).subspan(1)).elements()}};
}

std::vector<Output> reshape_gradient(const Node& node, std::span<const Output> grads) {
  return {reshape_like(grads[0], node.input(0))};
}

std::vector<Output> reshape_like_gradient(const Node& node, std::span<const Output> grads) {
  return {reshape_like(grads[0], node.input(0)), {}};
}

}  // namespace

const Op kReshape{.name = "Reshape",
                  .inputs = 1,
                  .shape = reshape_shape,
                  .gradient = reshape_gradient,
                  .shards = reshaped_shards,
                  .alias = true};
const StoredOptions<ReshapeOptions> kStoredReshape(kReshape);
const Op kReshapeLike{.name = "ReshapeLike",
                      .inputs = 2,
                      .shape = reshape_like_shape,
                      .gradient = reshape_like_gradient,
                      .shards = reshaped_shards,
                      .alias = true};
const Op kFlatten{.name = "Flatten",
                  .inputs = 1,
                  .shape = flatten_shape,
                  .gradient = reshape_gradient,
                  .shards = reshaped_shards,
                  .alias = true};

Output reshape(Output x, Shape shape, At at) {
  return x.graph().add(kReshape, {x}, at, NodeOptions(ReshapeOptions{std::move(shape)})).output();
}

Output reshape_like(Output x, Output like, At at) {
  // With a known shape no second input is needed, which would keep memory in use.
  if (like.shape().is_fully_known()) return reshape(x, like.shape(), at);
  return x.graph().add(kReshapeLike, {x, like}, at).output();
}

Output flatten(Output x, At at) { return x.graph().add(kFlatten, {x}, at).output(); }

}  // namespace belfry
