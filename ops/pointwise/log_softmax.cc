#include "belfry/ops/pointwise/log_softmax.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <utility>

#include "belfry/framework/base/require.h"
#include "belfry/framework/graph/shards.h"
#include "belfry/framework/kernels/math.h"
#include "belfry/framework/kernels/reduce.h"
#include "belfry/framework/kernels/simd.h"
#include "belfry/ops/exp.h"
#include "belfry/ops/kernels/axes.h"
#include "belfry/ops/kernels/exp_less.h"
#include "belfry/ops/kernels/typed_kernels.h"
#include "belfry/ops/operand.h"
#include "belfry/ops/reshape.h"
#include "belfry/ops/transpose.h"

namespace belfry {
namespace {

OutputTypes rows_shape(const ShapeContext& c) {
  c.require_same_dtype();
  c.require_floating(0);
  c.require(c.input(0).rank() >= 2, "needs rows, but the shape is ", c.input(0));
  for (std::size_t i = 1; i < c.inputs(); ++i)
    c.require(c.input(0).compatible(c.input(i)), "gradient and result have shapes ", c.input(0),
              " and ", c.input(i));
  return {c.type(0)};
}

OutputTypes log_sum_shape(const ShapeContext& c) {
  Shape shape = rows_shape(c)[0].shape;
  shape[shape.rank() - 1] = 1;
  return {shape};
}

Output log_softmax_grad(Output dy, Output y) {
  return y.graph().add(kLogSoftmaxGrad, {dy, y}).output();
}

Output row_sum(Output x) { return reduce_sum(x, {-1}, ReducedAxes::kKept); }

std::vector<Output> log_softmax_gradient(const Node& node, std::span<const Output> grads) {
  return {log_softmax_grad(grads[0], node.output())};
}

std::vector<Output> log_softmax_grad_gradient(const Node& node, std::span<const Output> grads) {
  const Output dy = node.input(0), y = node.input(1), g = grads[0], share = exp(y) * g;
  return {g - row_sum(share), -(share * row_sum(dy))};
}

std::vector<Output> log_sum_gradient(const Node& node, std::span<const Output> grads) {
  return {exp(node.input(0) - node.output()) * grads[0]};
}

template <class T>
BELFRY_KERNEL void less_both(const T* x, T shift, T log_sum, std::int64_t n, T* y) {
  BELFRY_INDEPENDENT
  for (std::int64_t i = 0; i < n; ++i) y[i] = (x[i] - shift) - log_sum;
}

template <class T>
void log_softmax_row(const T* x, std::int64_t n, T* y) {
  const T shift = kernels::largest_of_row(x, n);
  less_both(x, shift, math::log(kernels::sum_of_exponentials(x, shift, n)), n, y);
}

template <class T>
BELFRY_KERNEL void less_share(const T* dy, const T* y, T sum, std::int64_t n, T* dx) {
  BELFRY_INDEPENDENT
  for (std::int64_t i = 0; i < n; ++i) dx[i] = dy[i] - math::exp(y[i]) * sum;
}

template <class T>
void log_softmax_grad_row(const T* dy, const T* y, std::int64_t n, T* dx) {
  less_share(dy, y, kernels::sum(dy, n), n, dx);
}

template <class T>
T log_sum_of_row(const T* x, std::int64_t n) {
  const T largest = kernels::largest_of_row(x, n);
  const T shift = math::abs(largest) < math::Format<T>::kInfinity ? largest : T(0);
  return shift + math::log(kernels::sum_of_exponentials(x, shift, n));
}

template <class T>
T plain_log_sum_of_row(const T* x, std::int64_t n) {
  T largest = -std::numeric_limits<T>::infinity(), sum = 0;
  for (std::int64_t i = 0; i < n; ++i)
    if (x[i] > largest) largest = x[i];
  if (std::isinf(largest)) largest = 0;
  for (std::int64_t i = 0; i < n; ++i) sum += std::exp(x[i] - largest);
  return largest + std::log(sum);
}

template <class T>
void plain_log_softmax_row(const T* x, std::int64_t n, T* y) {
  const T largest = *std::max_element(x, x + n);
  T sum = 0;
  for (std::int64_t i = 0; i < n; ++i) sum += std::exp(x[i] - largest);
  const T log_sum = std::log(sum);
  for (std::int64_t i = 0; i < n; ++i) y[i] = x[i] - largest - log_sum;
}

template <class T>
void plain_log_softmax_grad_row(const T* dy, const T* y, std::int64_t n, T* dx) {
  T sum = 0;
  for (std::int64_t i = 0; i < n; ++i) sum += dy[i];
  for (std::int64_t i = 0; i < n; ++i) dx[i] = dy[i] - std::exp(y[i]) * sum;
}

KernelRun log_softmax_cpu(KernelPlan& plan) {
  return row_kernel<1>(plan, [](auto... row) { log_softmax_row(row...); });
}
KernelRun log_softmax_reference(KernelPlan& plan) {
  return row_kernel<1>(plan, [](auto... row) { plain_log_softmax_row(row...); });
}
KernelRun log_softmax_grad_cpu(KernelPlan& plan) {
  return row_kernel<2>(plan, [](auto... row) { log_softmax_grad_row(row...); });
}
KernelRun log_softmax_grad_reference(KernelPlan& plan) {
  return row_kernel<2>(plan, [](auto... row) { plain_log_softmax_grad_row(row...); });
}

// y[i] = of(row i, its length), for the rows of a part.
template <class Of>
KernelRun log_sum_kernel(const KernelPlan& plan, Of of) {
  const Shape& x = plan.input(0).shape;
  const std::int64_t n = x.back(), rows = x.product(1, x.rank() - 1);
  return typed_kernel(plan, [=]<class T>(T, const KernelPointers& p) {
    for (std::int64_t i = p.begin() * rows; i < p.end() * rows; ++i)
      p.output<T>()[i] = of(p.input<T>(0) + i * n, n);
  });
}

KernelRun log_sum_cpu(KernelPlan& plan) {
  return log_sum_kernel(plan, [](auto* x, std::int64_t n) { return log_sum_of_row(x, n); });
}
KernelRun log_sum_reference(KernelPlan& plan) {
  return log_sum_kernel(plan, [](auto* x, std::int64_t n) { return plain_log_sum_of_row(x, n); });
}

// f(x) along the last axis of a tensor of rank 2 or more, for any axis of any tensor.
template <class F>
Output along(const char* name, Output x, int axis, const At& at, const F& f) {
  const int rank = static_cast<int>(x.shape().rank());
  require(rank > 0 && axis < rank && axis >= -rank, name, " at ", at.site.str(),
          ": there is no axis ", axis, " in ", rank, " dimensions");
  if (rank == 1) {
    const Output row = f(reshape(x, {1, kUnknownSize}, at.site));
    return reshape(row, {kUnknownSize}, at.site);
  }
  std::vector<int> order;
  for (int i = 0; i < rank; ++i) order.push_back(i);
  std::swap(order[from_end(axis, x.shape().rank())], order.back());
  if (std::ranges::is_sorted(order)) return f(x);
  return transpose(f(transpose(x, order, at.site)), order, at.site);  // its own inverse
}

}  // namespace

const Op kLogSoftmax{.name = "LogSoftmax",
                     .inputs = 1,
                     .shape = rows_shape,
                     .gradient = log_softmax_gradient,
                     .split = WorkSplit::kRows,
                     .shards = by_rows<1>,
                     .in_place = InPlace::kFirst,
                     .cpu = log_softmax_cpu,
                     .reference = log_softmax_reference,
                     .autocast = Autocast::kFull};
const Op kLogSoftmaxGrad{.name = "LogSoftmaxGrad",
                         .inputs = 2,
                         .shape = rows_shape,
                         .gradient = log_softmax_grad_gradient,
                         .split = WorkSplit::kRows,
                         .shards = by_rows<3>,
                         .cpu = log_softmax_grad_cpu,
                         .reference = log_softmax_grad_reference};
const Op kLogSumExp{.name = "LogSumExp",
                    .inputs = 1,
                    .shape = log_sum_shape,
                    .gradient = log_sum_gradient,
                    .split = WorkSplit::kRows,
                    .shards = by_rows<1>,
                    .cpu = log_sum_cpu,
                    .reference = log_sum_reference,
                    .autocast = Autocast::kFull};

Output log_softmax(Output x, int axis, At at) {
  return along("log_softmax", x, axis, at,
               [&](Output rows) { return rows.graph().add(kLogSoftmax, {rows}, at).output(); });
}

Output logsumexp(Output x, int axis, ReducedAxes kept, At at) {
  const Output y = along("logsumexp", x, axis, at, [&](Output rows) {
    return rows.graph().add(kLogSumExp, {rows}, at).output();
  });
  // The sum of one element drops its dimension, even where others are not known.
  return kept == ReducedAxes::kKept ? y : reduce_sum(y, {axis}, at.site);
}

}  // namespace belfry
