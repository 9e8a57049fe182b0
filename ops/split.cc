#include "belfry/ops/split.h"

#include "belfry/ops/concat.h"
#include "belfry/ops/kernels/axes.h"
#include "belfry/ops/kernels/box_copy.h"

namespace belfry {
namespace {

OutputTypes split_shape(const ShapeContext& c) {
  const auto& options = c.options<SplitOptions>();
  Shape part = c.input(0);
  const std::size_t axis = checked_axis(c, options.axis, part.rank());
  c.require(options.parts > 0, "cannot make ", options.parts, " parts");
  if (part[axis] != kUnknown) {
    c.require(part[axis] % options.parts == 0, "dimension ", axis, " of ", part, " has no ",
              options.parts, " equal parts");
    part[axis] /= options.parts;
  }
  return OutputTypes(static_cast<std::size_t>(options.parts), part);
}

std::vector<Output> split_gradient(const Node& node, std::span<const Output> grads) {
  return {concat(grads, node.options<SplitOptions>().axis)};
}

// Parts are equal, so rows of output 0 are rows of every output.
KernelRun split_kernel(KernelPlan& plan) {
  const Shape& part = plan.output().shape;
  const std::size_t axis = from_end(plan.options<SplitOptions>().axis, part.rank());
  std::vector<BoxCopy> copies;
  for (std::size_t i = 0; i < plan.outputs(); ++i) {
    std::vector<std::int64_t> offset(part.rank());
    offset[axis] = static_cast<std::int64_t>(i) * part[axis];
    copies.emplace_back(part, plan.input(0).shape, offset, part, std::vector<std::int64_t>(),
                        plan.dtype());
  }
  return [copies](const Pointers& p) {
    for (std::size_t i = 0; i < copies.size(); ++i)
      copies[i](p.input<char>(0), p.output<char>(i), p.begin(), p.end());
  };
}

}  // namespace

const Op kSplit{.name = "Split",
                .inputs = 1,
                .shape = split_shape,
                .gradient = split_gradient,
                .split = Split::kRows,
                .reference = split_kernel,
                .half = true};

std::vector<Output> split(Output x, int n, int axis, At at) {
  const Node& node = x.graph().add(kSplit, {x}, at, Options(SplitOptions{n, axis}));
  std::vector<Output> parts;
  for (std::size_t i = 0; i < node.outputs(); ++i) parts.push_back(node.output(i));
  return parts;
}

}  // namespace belfry
