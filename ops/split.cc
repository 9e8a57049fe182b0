#include "belfry/ops/split.h"

#include "belfry/framework/base/require.h"
#include "belfry/framework/base/text.h"
#include "belfry/framework/graph/shards.h"
#include "belfry/framework/graph/stored_options.h"
#include "belfry/ops/concat.h"
#include "belfry/ops/kernels/axes.h"
#include "belfry/ops/kernels/box_copy.h"

namespace belfry {
namespace {

OutputTypes equal_parts(const ShapeContext& c, std::size_t axis) {
  const int parts = c.options<SplitOptions>().parts;
  Shape part = c.input(0);
  c.require(parts > 0, "cannot make ", parts, " parts");
  if (part[axis] != kUnknownSize) {
    c.require(part[axis] % parts == 0, "dimension ", axis, " of ", part, " has no ", parts,
              " equal parts; give their sizes");
    part[axis] /= parts;
  }
  return OutputTypes(static_cast<std::size_t>(parts), part);
}

OutputTypes sized_parts(const ShapeContext& c, std::size_t axis) {
  const std::vector<std::int64_t>& sizes = c.options<SplitOptions>().sizes;
  const Shape& x = c.input(0);
  const std::int64_t dim = x[axis];
  std::int64_t named = 0, open = 0;
  for (const std::int64_t size : sizes) {
    c.require(size >= -1, "size ", size, " is negative; -1 takes what the others leave");
    if (size == -1)
      ++open;
    else if (__builtin_add_overflow(named, size, &named))
      c.require(false, "the sizes ", join(sizes), " add up to more than a tensor can have");
  }
  c.require(open <= 1, "only one of the sizes ", join(sizes), " can be -1");
  c.require(dim == kUnknownSize || (open > 0 ? named <= dim : named == dim), "the sizes ",
            join(sizes), " add up to ", named, ", but dimension ", axis, " of ", x, " is ", dim);
  OutputTypes types;
  for (const std::int64_t size : sizes) {
    Shape part = x;
    part[axis] = size != -1 ? size : dim == kUnknownSize ? kUnknownSize : dim - named;
    types.emplace_back(part);
  }
  return types;
}

OutputTypes split_shape(const ShapeContext& c) {
  const auto& options = c.options<SplitOptions>();
  const std::size_t axis = checked_axis(c, options.axis, c.input(0).rank());
  return options.sizes.empty() ? equal_parts(c, axis) : sized_parts(c, axis);
}

std::vector<Output> split_gradient(const Node& node, std::span<const Output> grads) {
  return {concat(grads, node.options<SplitOptions>().axis)};
}

// A split along the batch is not cut into shards, because parts of shards are not shards of the
// parts.
Sharding split_shards(const ShardContext& c) {
  const int axis = c.node.options<SplitOptions>().axis;
  return from_end(axis, c.inputs[0].shape.rank()) == 0 ? Sharding() : row_shards(c, 1);
}

struct SplitPart {
  BoxCopy copy;
  std::int64_t rows;
};

// The work is divided by rows of output 0. Each call takes the same share of the rows of other
// outputs; if output 0 has no rows, one call does everything.
KernelRun split_kernel(KernelPlan& plan) {
  const Shape& x = plan.input(0).shape;
  const std::size_t axis = from_end(plan.options<SplitOptions>().axis, x.rank());
  std::vector<SplitPart> parts;
  std::vector<std::int64_t> offset(x.rank());
  for (std::size_t i = 0; i < plan.outputs(); ++i) {
    const Shape& part = plan.output(i).shape;
    parts.push_back(
        {BoxCopy(part, x, offset, part, std::vector<std::int64_t>(), plan.dtype()), part[0]});
    offset[axis] += part[axis];
  }
  return [parts](const KernelPointers& p) {
    const std::int64_t units = parts[0].rows;
    for (std::size_t i = 0; i < parts.size(); ++i) {
      const std::int64_t rows = parts[i].rows;
      const std::int64_t begin = units == 0 ? 0 : p.begin() * rows / units;
      const std::int64_t end = units == 0 ? rows : p.end() * rows / units;
      parts[i].copy(p.input<char>(0), p.output<char>(i), begin, end);
    }
  };
}

}  // namespace

const Op kSplit{.name = "Split",
                .inputs = 1,
                .shape = split_shape,
                .gradient = split_gradient,
                .split = WorkSplit::kRows,
                .shards = split_shards,
                .reference = split_kernel,
                .half = true};
const StoredOptions<SplitOptions> kStoredSplit(kSplit);

namespace {

std::vector<Output> added_parts(Output x, SplitOptions options, At at) {
  const Node& node = x.graph().add(kSplit, {x}, at, NodeOptions(std::move(options)));
  std::vector<Output> parts;
  for (std::size_t i = 0; i < node.outputs(); ++i) parts.push_back(node.output(i));
  return parts;
}

}  // namespace

std::vector<Output> split(Output x, int n, int axis, At at) {
  return added_parts(x, {n, axis}, at);
}

std::vector<Output> split(Output x, std::span<const std::int64_t> sizes, int axis, At at) {
  require(!sizes.empty(), "split (", at.site, "): no sizes are given");
  return added_parts(x, {static_cast<int>(sizes.size()), axis, {sizes.begin(), sizes.end()}}, at);
}

std::vector<Output> split(Output x, std::initializer_list<std::int64_t> sizes, int axis, At at) {
  return split(x, std::span(sizes.begin(), sizes.size()), axis, at);
}

}  // namespace belfry
