#include "belfry/ops/concat.h"

#include <algorithm>

#include "belfry/framework/base/require.h"
#include "belfry/framework/core_ops/fill.h"
#include "belfry/framework/graph/shards.h"
#include "belfry/framework/graph/stored_options.h"
#include "belfry/ops/kernels/axes.h"
#include "belfry/ops/kernels/box_copy.h"
#include "belfry/ops/slice.h"

namespace belfry {
namespace {

OutputTypes concat_shape(const ShapeContext& c) {
  c.require_same_dtype();
  c.require(c.inputs() > 0, "nothing to concatenate");
  Shape out = c.input(0);
  const std::size_t axis = checked_axis(c, c.options<ConcatOptions>().axis, out.rank());
  for (std::size_t i = 1; i < c.inputs(); ++i) {
    const Shape& x = c.input(i);
    c.require(x.rank() == out.rank(), "inputs 0 and ", i, " have shapes ", c.input(0), " and ", x);
    for (std::size_t d = 0; d < x.rank(); ++d) {
      if (d == axis) {
        out[d] = out[d] == kUnknownSize || x[d] == kUnknownSize ? kUnknownSize : out[d] + x[d];
        continue;
      }
      if (out[d] == kUnknownSize) out[d] = x[d];
      c.require(x[d] == out[d] || x[d] == kUnknownSize, "inputs 0 and ", i, " have shapes ",
                c.input(0), " and ", x, ", which differ elsewhere than along axis ", axis);
    }
  }
  return {out};
}

// Inputs: the gradient of the whole, then the parts.
OutputTypes concat_grad_shape(const ShapeContext& c) {
  const int part = c.options<ConcatGradOptions>().part;
  c.require(part >= 0 && static_cast<std::size_t>(part) + 1 < c.inputs(), "there is no part ",
            part);
  return {c.type(1 + static_cast<std::size_t>(part))};
}

// If the sizes along the axis are known, each part is a slice. Otherwise its place follows from the
// parts before it, so that N parts have N * N inputs.
std::vector<Output> concat_gradient(const Node& node, std::span<const Output> grads) {
  std::vector<Output> inputs{grads[0]}, result;
  inputs.insert(inputs.end(), node.inputs().begin(), node.inputs().end());
  const int axis = node.options<ConcatOptions>().axis;
  const std::size_t rank = grads[0].shape().rank(), along = from_end(axis, rank);
  const bool known = std::ranges::all_of(
      node.inputs(), [&](const Output& x) { return x.shape()[along] != kUnknownSize; });
  std::vector<std::int64_t> begin(rank), size(rank, -1);
  for (int part = 0; part < static_cast<int>(node.inputs().size()); ++part) {
    if (known) {
      size[along] = node.inputs()[static_cast<std::size_t>(part)].shape()[along];
      result.push_back(slice(grads[0], begin, size));
      begin[along] += size[along];
    } else {
      result.push_back(node.graph()
                           .add(kConcatGrad, inputs, {}, NodeOptions(ConcatGradOptions{axis, part}))
                           .output());
    }
  }
  return result;
}

// The other parts contribute zeros.
std::vector<Output> concat_grad_gradient(const Node& node, std::span<const Output> grads) {
  const auto& options = node.options<ConcatGradOptions>();
  std::vector<Output> parts, result(node.inputs().size());
  for (std::size_t i = 1; i < node.inputs().size(); ++i)
    parts.push_back(static_cast<int>(i) == options.part + 1 ? grads[0]
                                                            : fill_like(node.input(i), 0));
  result[0] = concat(parts, options.axis);
  return result;
}

// A concatenation along the batch is not cut into shards, because their rows have other places in
// the whole.
template <class Options>
Sharding concat_shards(const ShardContext& c) {
  const int axis = c.node.options<Options>().axis;
  return from_end(axis, c.inputs[0].shape.rank()) == 0 ? Sharding() : row_shards(c, ~0u);
}

std::vector<std::int64_t> offset_along(std::size_t rank, std::size_t axis, std::int64_t offset) {
  std::vector<std::int64_t> result(rank);
  result[axis] = offset;
  return result;
}

KernelRun concat_kernel(KernelPlan& plan) {
  const Shape& out = plan.output().shape;
  const std::size_t axis = from_end(plan.options<ConcatOptions>().axis, out.rank());
  struct Part {
    BoxCopy copy;
    std::int64_t first_row;
  };
  std::vector<Part> parts;
  std::int64_t offset = 0;
  for (std::size_t i = 0; i < plan.inputs(); ++i) {
    const Shape& x = plan.input(i).shape;
    parts.push_back({BoxCopy(x, x, {}, out, offset_along(out.rank(), axis, offset), plan.dtype()),
                     axis == 0 ? offset : 0});
    offset += x[axis];
  }
  return [parts](const KernelPointers& p) {
    for (std::size_t i = 0; i < parts.size(); ++i)
      parts[i].copy(p.input<char>(i), p.output<char>(), p.begin() - parts[i].first_row,
                    p.end() - parts[i].first_row);
  };
}

KernelRun concat_grad_kernel(KernelPlan& plan) {
  const auto& options = plan.options<ConcatGradOptions>();
  const Shape& out = plan.output().shape;
  const std::size_t axis = from_end(options.axis, out.rank());
  std::int64_t offset = 0;
  for (int i = 0; i < options.part; ++i)
    offset += plan.input(1 + static_cast<std::size_t>(i)).shape[axis];
  return [copy = BoxCopy(out, plan.input(0).shape, offset_along(out.rank(), axis, offset), out, {},
                         plan.dtype())](const KernelPointers& p) {
    copy(p.input<char>(0), p.output<char>(), p.begin(), p.end());
  };
}

}  // namespace

const Op kConcat{.name = "Concat",
                 .inputs = kVariadicInputs,
                 .shape = concat_shape,
                 .gradient = concat_gradient,
                 .split = WorkSplit::kRows,
                 .shards = concat_shards<ConcatOptions>,
                 .reference = concat_kernel,
                 .half = true};
const Op kConcatGrad{.name = "ConcatGrad",
                     .inputs = kVariadicInputs,
                     .shape = concat_grad_shape,
                     .gradient = concat_grad_gradient,
                     .split = WorkSplit::kRows,
                     .shards = concat_shards<ConcatGradOptions>,
                     .reference = concat_grad_kernel,
                     .half = true};
const StoredOptions<ConcatOptions> kStoredConcat(kConcat);
const StoredOptions<ConcatGradOptions> kStoredConcatGrad(kConcatGrad);

Output concat(std::span<const Output> xs, int axis, At at) {
  require(!xs.empty(), "concat (", at.site, "): nothing to concatenate");
  if (xs.size() == 1) return xs[0];
  return xs[0].graph().add(kConcat, xs, at, NodeOptions(ConcatOptions{axis})).output();
}

Output concat(std::initializer_list<Output> xs, int axis, At at) {
  return concat(std::span(xs.begin(), xs.size()), axis, at);
}

}  // namespace belfry
