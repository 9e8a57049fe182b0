#include "belfry/ops/reduce_max.h"

#include <algorithm>
#include <numeric>
#include <type_traits>

#include "belfry/framework/base/require.h"
#include "belfry/framework/base/text.h"
#include "belfry/framework/graph/shards.h"
#include "belfry/framework/graph/stored_options.h"
#include "belfry/ops/arithmetic.h"
#include "belfry/ops/concat.h"
#include "belfry/ops/kernels/axes.h"
#include "belfry/ops/kernels/broadcasting.h"
#include "belfry/ops/kernels/extremes.h"
#include "belfry/ops/kernels/lines.h"
#include "belfry/ops/kernels/pointwise_op.h"
#include "belfry/ops/operand.h"
#include "belfry/ops/slice.h"
#include "belfry/ops/transpose.h"

namespace belfry {
namespace {

// The shape of a tensor `x` whose axes are reduced.
Shape reduced_shape(const ShapeContext& c, const Shape& x) {
  const auto& options = c.options<ReductionOptions>();
  const std::vector<bool> reduced = checked_axes(c, options.axes, x.rank());
  std::vector<std::int64_t> dims;
  for (std::size_t axis = 0; axis < x.rank(); ++axis) {
    c.require(!reduced[axis] || x[axis] != 0, "axis ", axis, " of ", x,
              " has no elements, of which none is the largest or smallest");
    if (!reduced[axis]) dims.push_back(x[axis]);
    if (reduced[axis] && options.kept == ReducedAxes::kKept) dims.push_back(1);
  }
  return Shape(dims);
}

OutputTypes extreme_shape(const ShapeContext& c) {
  require_arithmetic(c);
  return {reduced_shape(c, c.input(0))};
}

// Inputs: the gradient of y, x, y.
OutputTypes spread_shape(const ShapeContext& c) {
  c.require_same_dtype();
  c.require_floating(0);
  const Shape y = reduced_shape(c, c.input(1));
  c.require(c.input(0).compatible(y) && c.input(2).compatible(y), "gradient and result are ",
            c.input(0), " and ", c.input(2), ", but the reduced tensor is ", y);
  return {c.type(1)};
}

// Inputs: a tensor like x, x, y.
OutputTypes mean_of_ties_shape(const ShapeContext& c) {
  c.require_same_dtype();
  c.require_floating(0);
  const Shape y = reduced_shape(c, c.input(1));
  c.require(c.input(0).compatible(c.input(1)) && c.input(2).compatible(y), "the inputs are ",
            c.input(0), ", ", c.input(1), " and ", c.input(2), ", but the last must be ", y);
  return {c.type(2)};
}

std::vector<Output> extreme_gradient(const Node& node, std::span<const Output> grads) {
  return {grads[0]
              .graph()
              .add(kSpreadToTies, {grads[0], node.input(0), node.output()}, {},
                   NodeOptions(node.options<ReductionOptions>()))
              .output()};
}

// Which elements are ties is constant almost everywhere.
template <const Op& adjoint>
std::vector<Output> ties_gradient(const Node& node, std::span<const Output> grads) {
  return {grads[0]
              .graph()
              .add(adjoint, {grads[0], node.input(1), node.input(2)}, {},
                   NodeOptions(node.options<ReductionOptions>()))
              .output(),
          {},
          {}};
}

// The lines of x along the reduced axes.
Lines lines_of(const KernelPlan& plan, const Shape& x) {
  return {x, axis_mask(plan.options<ReductionOptions>().axes, x.rank())};
}

// The elements of one row of dimension 0.
std::int64_t row_of(const Shape& y) { return y.rank() == 0 ? 1 : y.product(1, y.rank()); }

// One by one, which is right for all numbers.
template <class F, class T>
BELFRY_HD T exact_extreme(F f, const T* x, std::int64_t n) {
  T result = x[0];
  for (std::int64_t i = 1; i < n; ++i) result = f(result, x[i]);
  return result;
}

// An extreme, and a sum, which is NaN if one of the elements is. V: T, or a vector of T.
template <class F, class T, class V>
BELFRY_HD void fold_in(const V& x, V& extreme, V& sum) {
  F::keep(extreme, x);
  if constexpr (std::is_floating_point_v<T>) sum += x;
}

// Folds `count` of them, a power of two, into the first.
template <class F, class T, class V>
BELFRY_HD void fold(V* extremes, V* sums, int count) {
  for (int half = count / 2; half > 0; half /= 2)
    for (int j = 0; j < half; ++j) {
      F::keep(extremes[j], extremes[j + half]);
      if constexpr (std::is_floating_point_v<T>) sums[j] += sums[j + half];
    }
}

// If the row may have NaN, or the result is a zero of either sign, the row is read once more.
template <class F, class T>
BELFRY_KERNEL void extreme_of_row(F f, const T* x, std::int64_t n, T* y) {
  typedef T Vector __attribute__((vector_size(64)));
  constexpr std::int64_t kLanes = 64 / sizeof(T), kVectors = 4;
  T extreme = x[0], sum = x[0];
  std::int64_t i = 1;
  if (n >= kLanes) {
    Vector extremes[kVectors], sums[kVectors], value;
    __builtin_memcpy(&value, x, sizeof value);
    for (int v = 0; v < kVectors; ++v) extremes[v] = sums[v] = value;
    for (i = kLanes; i + kVectors * kLanes <= n; i += kVectors * kLanes)
      for (int v = 0; v < kVectors; ++v) {
        __builtin_memcpy(&value, x + i + v * kLanes, sizeof value);
        fold_in<F, T>(value, extremes[v], sums[v]);
      }
    for (; i + kLanes <= n; i += kLanes) {
      __builtin_memcpy(&value, x + i, sizeof value);
      fold_in<F, T>(value, extremes[0], sums[0]);
    }
    fold<F, T>(extremes, sums, kVectors);
    T lanes[kLanes], lane_sums[kLanes];
    __builtin_memcpy(lanes, &extremes[0], sizeof lanes);
    __builtin_memcpy(lane_sums, &sums[0], sizeof lane_sums);
    fold<F, T>(lanes, lane_sums, kLanes);
    extreme = lanes[0];
    sum = lane_sums[0];
  }
  for (; i < n; ++i) fold_in<F, T>(x[i], extreme, sum);
  const bool is_exact = std::is_integral_v<T> || (sum == sum && extreme != 0);
  *y = is_exact ? extreme : exact_extreme(f, x, n);
}

// y[c] of columns [0, count) of x [n, columns].
template <class F, class T>
BELFRY_KERNEL void extremes_of_columns(F f, const T* x, std::int64_t n, std::int64_t columns,
                                       std::int64_t count, T* y) {
  for (std::int64_t c = 0; c < count; ++c) y[c] = x[c];
  for (std::int64_t r = 1; r < n; ++r) {
    const T* const row = x + r * columns;
    BELFRY_INDEPENDENT
    for (std::int64_t c = 0; c < count; ++c) y[c] = f(y[c], row[c]);
  }
}

template <class F>
KernelRun extreme_cpu(KernelPlan& plan) {
  const Lines lines = lines_of(plan, plan.input(0).shape);
  const std::int64_t row = row_of(plan.output().shape);
  return visit_numeric(plan.dtype(), [&]<class T>(T) -> KernelRun {
    return [lines, row](const KernelPointers& p) {
      const std::int64_t end = p.end() * row, inner = lines.inner;
      for (std::int64_t line = p.begin() * row; line < end;) {
        const std::int64_t count = std::min(inner - line % inner, end - line);
        const T* const x = p.input<T>(0) + lines.first(line);
        if (inner == 1)
          extreme_of_row(F{}, x, lines.n, p.output<T>() + line);
        else
          extremes_of_columns(F{}, x, lines.n, inner, count, p.output<T>() + line);
        line += count;
      }
    };
  });
}

template <class F>
KernelRun extreme_reference(KernelPlan& plan) {
  const Shape& x = plan.input(0).shape;
  Shape kept = x;
  const std::vector<bool> reduced = axis_mask(plan.options<ReductionOptions>().axes, x.rank());
  for (std::size_t axis = 0; axis < x.rank(); ++axis)
    if (reduced[axis]) kept[axis] = 1;
  const std::int64_t row = row_of(plan.output().shape);
  return visit_numeric(plan.dtype(), [&]<class T>(T) -> KernelRun {
    return [x, kept, row](const KernelPointers& p) {
      const std::int64_t begin = p.begin() * row, end = p.end() * row;
      std::fill(p.output<T>() + begin, p.output<T>() + end, F::template kNeutral<T>);
      for (std::int64_t i = 0; i < x.elements(); ++i) {
        const std::int64_t to = broadcast_index(i, x, kept);
        if (to >= begin && to < end) p.output<T>()[to] = F{}(p.output<T>()[to], p.input<T>(0)[i]);
      }
    };
  });
}

template <class T>
std::int64_t ties_of(const T* x, const Lines& lines, T extreme) {
  std::int64_t ties = 0;
  for (std::int64_t i = 0; i < lines.n; ++i) ties += x[i * lines.inner] == extreme ? 1 : 0;
  return ties;
}

// Element j of x, in line `line`, gets its share of the gradient. If the extreme is NaN, there are
// no ties, and all get NaN.
KernelRun spread_kernel(KernelPlan& plan) {
  const Lines lines = lines_of(plan, plan.output().shape);
  const std::int64_t row = row_of(plan.output().shape);
  return visit_floating(plan.dtype(), [&]<class T>(T) -> KernelRun {
    return [lines, row](const KernelPointers& p) {
      const std::int64_t begin = p.begin() * row, end = p.end() * row,
                         block = lines.n * lines.inner;
      if (begin == end) return;
      for (std::int64_t outer = begin / block; outer * block < end; ++outer)
        for (std::int64_t i = 0; i < lines.inner; ++i) {
          const std::int64_t line = outer * lines.inner + i, first = outer * block + i;
          const T extreme = p.input<T>(2)[line];
          const T share =
              p.input<T>(0)[line] / static_cast<T>(ties_of(p.input<T>(1) + first, lines, extreme));
          for (std::int64_t j = 0; j < lines.n; ++j) {
            const std::int64_t at = first + j * lines.inner;
            if (at >= begin && at < end)
              p.output<T>()[at] = share * (p.input<T>(1)[at] == extreme ? T(1) : T(0));
          }
        }
    };
  });
}

KernelRun mean_of_ties_kernel(KernelPlan& plan) {
  const Lines lines = lines_of(plan, plan.input(1).shape);
  const std::int64_t row = row_of(plan.output().shape);
  return visit_floating(plan.dtype(), [&]<class T>(T) -> KernelRun {
    return [lines, row](const KernelPointers& p) {
      for (std::int64_t line = p.begin() * row; line < p.end() * row; ++line) {
        const T extreme = p.input<T>(2)[line];
        T sum = 0, ties = 0;
        for (std::int64_t j = 0; j < lines.n; ++j) {
          const std::int64_t at = lines.first(line) + j * lines.inner;
          if (p.input<T>(1)[at] != extreme) continue;
          sum += p.input<T>(0)[at];
          ties += 1;
        }
        p.output<T>()[line] = sum / ties;
      }
    };
  });
}

// Lines along dimension 0 mix the samples of a batch.
template <unsigned own>
Sharding line_shards(const ShardContext& c) {
  const std::size_t rank = c.inputs[own == 1 ? 0 : 1].shape.rank();
  const std::vector<bool> reduced = axis_mask(c.node.options<ReductionOptions>().axes, rank);
  return rank == 0 || reduced[0] ? Sharding() : row_shards(c, own);
}

// The kept axes, and then the reduced ones.
std::vector<int> kept_first(const std::vector<bool>& reduced) {
  std::vector<int> order(reduced.size());
  std::iota(order.begin(), order.end(), 0);
  std::ranges::stable_partition(order,
                                [&](int a) { return !reduced[static_cast<std::size_t>(a)]; });
  return order;
}

bool all_are_axes(const std::vector<int>& axes, int rank) {
  return std::ranges::all_of(axes, [rank](int a) { return a >= -rank && a < rank; });
}

// Kernels take neighbouring axes; others are moved to the end.
Output extreme(const Op& op, Output x, std::vector<int> axes, ReducedAxes kept, At at) {
  const std::size_t rank = x.shape().rank();
  if (rank == 0 && axes.empty()) return x;
  const auto add = [&](Output input, std::vector<int> along) {
    NodeOptions options(ReductionOptions{std::move(along), kept});
    return input.graph().add(op, {input}, at, std::move(options)).output();
  };
  if (!all_are_axes(axes, static_cast<int>(rank))) return add(x, std::move(axes));  // is refused
  const std::vector<bool> reduced = axis_mask(axes, rank);
  const auto count = std::ranges::count(reduced, true);
  if (!axes.empty() && count != std::ssize(axes)) return add(x, std::move(axes));  // so are repeats
  const auto first = std::ranges::find(reduced, true);
  if (std::find(first, reduced.end(), false) - first == count) return add(x, std::move(axes));
  const std::vector<int> order = kept_first(reduced);
  std::vector<int> last(static_cast<std::size_t>(count)), inverse(rank);
  std::iota(last.begin(), last.end(), static_cast<int>(rank) - static_cast<int>(count));
  const Output y = add(transpose(x, order, at), last);
  for (std::size_t i = 0; i < rank; ++i)
    inverse[static_cast<std::size_t>(order[i])] = static_cast<int>(i);
  return kept == ReducedAxes::kKept ? transpose(y, inverse, at) : y;
}

// Elements [from, from + size) along an axis.
Output part_of(Output x, std::size_t axis, std::int64_t from, std::int64_t size, At at) {
  std::vector<std::int64_t> begin(x.shape().rank(), 0), sizes(x.shape().rank(), -1);
  begin[axis] = from;
  sizes[axis] = size;
  return slice(x, begin, sizes, at);
}

// The product along an axis, which stays as 1.
Output product_along(Output x, std::size_t axis, At at) {
  if (x.shape()[axis] == 0)
    return Operand(reduce_sum(x, {static_cast<int>(axis)}, ReducedAxes::kKept, at)) + 1;
  const auto size = [&] { return x.shape()[axis]; };
  while (size() > 1) {
    const std::int64_t half = size() / 2;
    const Output product = mul(part_of(x, axis, 0, half, at), part_of(x, axis, half, half, at), at);
    const bool odd = size() % 2 == 1;
    x = odd ? concat({product, part_of(x, axis, 2 * half, 1, at)}, static_cast<int>(axis), at)
            : product;
  }
  return x;
}

}  // namespace

const Op kReduceMax{.name = "ReduceMax",
                    .inputs = 1,
                    .shape = extreme_shape,
                    .gradient = extreme_gradient,
                    .split = WorkSplit::kRows,
                    .shards = line_shards<1>,
                    .cpu = extreme_cpu<kernels::Larger>,
                    .reference = extreme_reference<kernels::Larger>};
const Op kReduceMin{.name = "ReduceMin",
                    .inputs = 1,
                    .shape = extreme_shape,
                    .gradient = extreme_gradient,
                    .split = WorkSplit::kRows,
                    .shards = line_shards<1>,
                    .cpu = extreme_cpu<kernels::Smaller>,
                    .reference = extreme_reference<kernels::Smaller>};
const Op kSpreadToTies{.name = "SpreadToTies",
                       .inputs = 3,
                       .shape = spread_shape,
                       .gradient = ties_gradient<kMeanOfTies>,
                       .split = WorkSplit::kRows,
                       .shards = line_shards<7>,
                       .reference = spread_kernel};
const Op kMeanOfTies{.name = "MeanOfTies",
                     .inputs = 3,
                     .shape = mean_of_ties_shape,
                     .gradient = ties_gradient<kSpreadToTies>,
                     .split = WorkSplit::kRows,
                     .shards = line_shards<7>,
                     .reference = mean_of_ties_kernel};
const StoredOptions<ReductionOptions> kStoredReduceMax(kReduceMax, kReduceMin, kSpreadToTies,
                                                       kMeanOfTies);

Output reduce_max(Output x, std::vector<int> axes, ReducedAxes kept, At at) {
  return extreme(kReduceMax, x, std::move(axes), kept, at);
}
Output reduce_max(Output x, std::vector<int> axes, At at) {
  return reduce_max(x, std::move(axes), ReducedAxes::kDropped, at);
}
Output reduce_min(Output x, std::vector<int> axes, ReducedAxes kept, At at) {
  return extreme(kReduceMin, x, std::move(axes), kept, at);
}
Output reduce_min(Output x, std::vector<int> axes, At at) {
  return reduce_min(x, std::move(axes), ReducedAxes::kDropped, at);
}

Output reduce_prod(Output x, std::vector<int> axes, ReducedAxes kept, At at) {
  const std::size_t rank = x.shape().rank();
  require(all_are_axes(axes, static_cast<int>(rank)), "reduce_prod (", at.site, "): of the axes ",
          join(axes), ", one is not an axis of ", x.shape());
  const std::vector<bool> reduced = axis_mask(axes, rank);
  require(axes.empty() || std::ranges::count(reduced, true) == std::ssize(axes), "reduce_prod (",
          at.site, "): of the axes ", join(axes), ", one is there twice");
  std::vector<int> ones;
  for (std::size_t axis = 0; axis < rank; ++axis) {
    if (!reduced[axis]) continue;
    require(x.shape()[axis] != kUnknownSize, "reduce_prod (", at.site, "): axis ", axis, " of ",
            x.shape(), " has no known size; reduce another axis, or give the size");
    x = product_along(x, axis, at);
    ones.push_back(static_cast<int>(axis));
  }
  const bool drops = kept == ReducedAxes::kDropped && !ones.empty();
  return drops ? reduce_sum(x, ones, at) : x;  // of one element each
}
Output reduce_prod(Output x, std::vector<int> axes, At at) {
  return reduce_prod(x, std::move(axes), ReducedAxes::kDropped, at);
}

}  // namespace belfry
