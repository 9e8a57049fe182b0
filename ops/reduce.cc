#include "belfry/ops/reduce.h"

#include <algorithm>

#include "belfry/framework/graph/shards.h"
#include "belfry/framework/graph/stored_options.h"
#include "belfry/framework/kernels/pointwise.h"
#include "belfry/ops/broadcast_to.h"
#include "belfry/ops/kernels/axes.h"
#include "belfry/ops/kernels/broadcasting.h"
#include "belfry/ops/kernels/pointwise_op.h"
#include "belfry/ops/kernels/reduction.h"
#include "belfry/ops/reshape.h"

namespace belfry {
namespace {

OutputTypes reduce_shape(const ShapeContext& c) {
  const auto& options = c.options<ReductionOptions>();
  const Shape& x = c.input(0);
  const std::vector<bool> reduced = checked_axes(c, options.axes, x.rank());
  std::vector<std::int64_t> dims;
  for (std::size_t axis = 0; axis < x.rank(); ++axis) {
    if (!reduced[axis]) dims.push_back(x[axis]);
    if (reduced[axis] && options.kept == ReducedAxes::kKept) dims.push_back(1);
  }
  return {Shape(dims)};
}

OutputTypes reduce_sum_shape(const ShapeContext& c) {
  require_arithmetic(c);
  return reduce_shape(c);
}

OutputTypes reduce_mean_shape(const ShapeContext& c) {
  c.require_floating(0);
  return reduce_shape(c);
}

// The axes that a node reduces, in full.
std::vector<int> reduced_axes(const Node& node) {
  const std::vector<bool> mask =
      axis_mask(node.options<ReductionOptions>().axes, node.input(0).shape().rank());
  std::vector<int> axes;
  for (std::size_t axis = 0; axis < mask.size(); ++axis)
    if (mask[axis]) axes.push_back(static_cast<int>(axis));
  return axes;
}

std::vector<Output> sum_gradient(const Node& node, std::span<const Output> grads) {
  return {broadcast_along(grads[0], node.input(0), reduced_axes(node), BroadcastValues::kRepeat)};
}

std::vector<Output> mean_gradient(const Node& node, std::span<const Output> grads) {
  return {broadcast_along(grads[0], node.input(0), reduced_axes(node), BroadcastValues::kShare)};
}

struct DivideBy {
  double count;
  template <class T>
  BELFRY_HD T operator()(T x) const {
    return x / static_cast<T>(count);
  }
};

// The input and how to reduce it.
struct ReducedInput {
  explicit ReducedInput(const KernelPlan& plan)
      : axes(axis_mask(plan.options<ReductionOptions>().axes, plan.input(0).shape.rank())),
        shape(plan.input(0).shape),
        over_batch(shape.rank() > 0 && axes[0]) {
    for (std::size_t axis = 0; axis < shape.rank(); ++axis)
      if (axes[axis]) count *= static_cast<double>(shape[axis]);
    if (over_batch) count = plan.of_all(count);
  }

  std::vector<bool> axes;  // true if reduced
  Shape shape;
  bool over_batch;   // the result is one row, or a partial sum of it
  double count = 1;  // elements that are summed into one, in all shards
};

KernelRun fast_kernel(KernelPlan& plan, bool mean) {
  if (!is_floating(plan.dtype())) return {};
  const ReducedInput input(plan);
  const Reduction reduction(input.shape, input.axes);
  plan.workspace(reduction.workspace() * static_cast<std::int64_t>(size_of(plan.dtype())));
  const std::int64_t rows = input.over_batch || input.shape.rank() == 0 ? 1 : input.shape[0];
  const std::int64_t row = rows == 0 ? 0 : reduction.size() / rows;
  return visit_floating(plan.dtype(), [&]<class T>(T) -> KernelRun {
    return [=, over_batch = input.over_batch,
            divide = DivideBy{input.count}](const KernelPointers& p) {
      const std::int64_t begin = over_batch ? 0 : p.begin(), end = over_batch ? 1 : p.end();
      T* const y = p.output<T>();
      reduction(p.input<T>(0), y, reinterpret_cast<T*>(p.workspace()), begin, end);
      if (mean) kernels::map(divide, begin * row, end * row, y, static_cast<const T*>(y));
    };
  });
}

// Adds the terms of each result in order, in f64, or in i64 for integers.
template <class T>
void plain_sum(const KernelPointers& p, const ReducedInput& input, const Shape& kept,
               std::int64_t row, bool mean) {
  using Wide = std::conditional_t<std::is_integral_v<T>, std::int64_t, double>;
  Wide* const sums = reinterpret_cast<Wide*>(p.workspace());
  const std::int64_t begin = input.over_batch ? 0 : p.begin() * row;
  const std::int64_t end = input.over_batch ? kept.elements() : p.end() * row;
  std::fill(sums + begin, sums + end, Wide(0));
  const std::int64_t terms = input.shape.elements();
  for (std::int64_t i = 0; i < terms; ++i) {
    const std::int64_t to = broadcast_index(i, input.shape, kept);
    if (to >= begin && to < end) sums[to] += p.input<T>(0)[i];
  }
  for (std::int64_t i = begin; i < end; ++i)
    p.output<T>()[i] = static_cast<T>(mean ? sums[i] / input.count : sums[i]);
}

KernelRun plain_kernel(KernelPlan& plan, bool mean) {
  const ReducedInput input(plan);
  Shape kept = input.shape;
  for (std::size_t axis = 0; axis < kept.rank(); ++axis)
    if (input.axes[axis]) kept[axis] = 1;
  plan.workspace(kept.elements() * 8);
  const std::int64_t row = kept.rank() == 0 ? 1 : kept.product(1, kept.rank());
  return visit_numeric(plan.dtype(), [&]<class T>(T) -> KernelRun {
    return [=](const KernelPointers& p) { plain_sum<T>(p, input, kept, row, mean); };
  });
}

KernelRun sum_cpu(KernelPlan& plan) { return fast_kernel(plan, false); }
KernelRun mean_cpu(KernelPlan& plan) { return fast_kernel(plan, true); }
KernelRun sum_reference(KernelPlan& plan) { return plain_kernel(plan, false); }
KernelRun mean_reference(KernelPlan& plan) { return plain_kernel(plan, true); }

bool reduces_batch(Output x, const std::vector<int>& axes) {
  const int rank = static_cast<int>(x.shape().rank());
  return axes.empty() || std::ranges::any_of(axes, [&](int a) { return a == 0 || a == -rank; });
}

Output reduce(const Op& batch, const Op& rows, Output x, std::vector<int> axes, ReducedAxes kept,
              At at) {
  if (x.shape().rank() == 0 && axes.empty()) return x;
  const Op& op = reduces_batch(x, axes) ? batch : rows;
  return x.graph().add(op, {x}, at, NodeOptions(ReductionOptions{std::move(axes), kept})).output();
}

}  // namespace

const Op kReduceSum{.name = "ReduceSum",
                    .inputs = 1,
                    .shape = reduce_sum_shape,
                    .gradient = sum_gradient,
                    .heavy = true,
                    .shards = to_sums<1>,
                    .cpu = sum_cpu,
                    .reference = sum_reference,
                    .autocast = Autocast::kFull};
const Op kReduceMean{.name = "ReduceMean",
                     .inputs = 1,
                     .shape = reduce_mean_shape,
                     .gradient = mean_gradient,
                     .heavy = true,
                     .shards = to_sums<1>,
                     .cpu = mean_cpu,
                     .reference = mean_reference,
                     .autocast = Autocast::kFull};
const Op kReduceSumRows{.name = "ReduceSumRows",
                        .inputs = 1,
                        .shape = reduce_sum_shape,
                        .gradient = sum_gradient,
                        .split = WorkSplit::kRows,
                        .shards = by_rows<1>,
                        .cpu = sum_cpu,
                        .reference = sum_reference,
                        .autocast = Autocast::kFull};
const Op kReduceMeanRows{.name = "ReduceMeanRows",
                         .inputs = 1,
                         .shape = reduce_mean_shape,
                         .gradient = mean_gradient,
                         .split = WorkSplit::kRows,
                         .shards = by_rows<1>,
                         .cpu = mean_cpu,
                         .reference = mean_reference,
                         .autocast = Autocast::kFull};
const StoredOptions<ReductionOptions> kStoredReduceSum(kReduceSum, kReduceMean, kReduceSumRows,
                                                       kReduceMeanRows);

Output reduce_sum(Output x, std::vector<int> axes, ReducedAxes kept, At at) {
  return reduce(kReduceSum, kReduceSumRows, x, std::move(axes), kept, at);
}
Output reduce_sum(Output x, std::vector<int> axes, At at) {
  return reduce_sum(x, std::move(axes), ReducedAxes::kDropped, at);
}
Output reduce_mean(Output x, std::vector<int> axes, ReducedAxes kept, At at) {
  return reduce(kReduceMean, kReduceMeanRows, x, std::move(axes), kept, at);
}
Output reduce_mean(Output x, std::vector<int> axes, At at) {
  return reduce_mean(x, std::move(axes), ReducedAxes::kDropped, at);
}

}  // namespace belfry
