#include "belfry/ops/slice.h"

#include "belfry/framework/graph/shards.h"
#include "belfry/framework/graph/stored_options.h"
#include "belfry/ops/kernels/box_copy.h"

namespace belfry {
namespace {

// The shape of the slice of a tensor of shape `x`.
Shape sliced(const ShapeContext& c, const Shape& x) {
  const auto& [begin, size] = c.options<SliceOptions>();
  c.require(begin.size() == x.rank() && size.size() == x.rank(), "begin and size have ",
            begin.size(), " and ", size.size(), " values for ", x);
  std::vector<std::int64_t> dims;
  for (std::size_t axis = 0; axis < x.rank(); ++axis) {
    const std::int64_t first = begin[axis], count = size[axis], dim = x[axis];
    c.require(first >= 0 && count >= -1, "begin ", first, " or size ", count, " is negative");
    const bool known = dim != kUnknownSize;
    c.require(!known || (first <= dim && first + (count == -1 ? 0 : count) <= dim), "begin ", first,
              " and size ", count, " leave dimension ", axis, " of ", x);
    dims.push_back(count != -1 ? count : known ? dim - first : kUnknownSize);
  }
  return Shape(dims);
}

OutputTypes slice_shape(const ShapeContext& c) { return {sliced(c, c.input(0))}; }

OutputTypes slice_grad_shape(const ShapeContext& c) {
  const Shape expected = sliced(c, c.input(1));
  c.require(c.input(0).compatible(expected), "the gradient has shape ", c.input(0),
            ", but the slice ", expected);
  return {c.input(1)};
}

std::vector<Output> slice_gradient(const Node& node, std::span<const Output> grads) {
  const auto& [begin, size] = node.options<SliceOptions>();
  return {slice_grad(grads[0], node.input(0), begin, size)};
}

std::vector<Output> slice_grad_gradient(const Node& node, std::span<const Output> grads) {
  const auto& [begin, size] = node.options<SliceOptions>();
  return {slice(grads[0], begin, size), {}};
}

KernelRun slice_kernel(KernelPlan& plan) {
  const Shape& out = plan.output().shape;
  return [copy = BoxCopy(out, plan.input(0).shape, plan.options<SliceOptions>().begin, out, {},
                         plan.dtype())](const KernelPointers& p) {
    copy(p.input<char>(0), p.output<char>(), p.begin(), p.end());
  };
}

KernelRun slice_grad_kernel(KernelPlan& plan) {
  const Shape& box = plan.input(0).shape;
  const Shape& whole = plan.output().shape;
  const auto& begin = plan.options<SliceOptions>().begin;
  const std::int64_t first = whole.rank() == 0 ? 0 : begin[0];
  const std::int64_t row = whole.product(whole.rank() == 0 ? 0 : 1, whole.rank()) *
                           static_cast<std::int64_t>(size_of(plan.dtype()));
  return [copy = BoxCopy(box, box, {}, whole, begin, plan.dtype()), first,
          row](const KernelPointers& p) {
    std::memset(p.output<char>() + p.begin() * row, 0,
                static_cast<std::size_t>((p.end() - p.begin()) * row));
    copy(p.input<char>(0), p.output<char>(), p.begin() - first, p.end() - first);
  };
}

// Each shard can be sliced separately only if the slice keeps all rows of the batch.
template <unsigned own>
Sharding slice_shards(const ShardContext& c) {
  const auto& begin = c.node.options<SliceOptions>().begin;
  return begin.empty() || begin[0] != 0 ? Sharding() : row_shards(c, own);
}

}  // namespace

const Op kSlice{.name = "Slice",
                .inputs = 1,
                .shape = slice_shape,
                .gradient = slice_gradient,
                .split = WorkSplit::kRows,
                .shards = slice_shards<1>,
                .reference = slice_kernel,
                .half = true};
const Op kSliceGrad{.name = "SliceGrad",
                    .inputs = 2,
                    .shape = slice_grad_shape,
                    .gradient = slice_grad_gradient,
                    .split = WorkSplit::kRows,
                    .shards = slice_shards<3>,
                    .reference = slice_grad_kernel,
                    .half = true};
const StoredOptions<SliceOptions> kStoredSlice(kSlice, kSliceGrad);

Output slice(Output x, std::vector<std::int64_t> begin, std::vector<std::int64_t> size, At at) {
  NodeOptions options(SliceOptions{std::move(begin), std::move(size)});
  return x.graph().add(kSlice, {x}, at, std::move(options)).output();
}

Output slice_grad(Output dy, Output like, std::vector<std::int64_t> begin,
                  std::vector<std::int64_t> size, At at) {
  NodeOptions options(SliceOptions{std::move(begin), std::move(size)});
  return dy.graph().add(kSliceGrad, {dy, like}, at, std::move(options)).output();
}

}  // namespace belfry
