#include "belfry/ops/softmax.h"

#include <cmath>

#include "belfry/framework/graph/shards.h"
#include "belfry/framework/kernels/reduce.h"
#include "belfry/framework/kernels/simd.h"
#include "belfry/ops/kernels/exp_less.h"
#include "belfry/ops/kernels/typed_kernels.h"
#include "belfry/ops/operand.h"
#include "belfry/ops/reduce.h"

namespace belfry {
namespace {

OutputTypes softmax_shape(const ShapeContext& c) {
  c.require_floating(0);
  c.require(c.input(0).rank() >= 2, "needs rows, but the shape is ", c.input(0),
            "; reshape a vector to [1,n]");
  return {c.type(0)};
}

OutputTypes softmax_grad_shape(const ShapeContext& c) {
  c.require_same_dtype();
  c.require(c.input(0).compatible(c.input(1)), "gradient and softmax have shapes ", c.input(0),
            " and ", c.input(1));
  return softmax_shape(c);
}

Output softmax_grad(Output dy, Output y) { return y.graph().add(kSoftmaxGrad, {dy, y}).output(); }

std::vector<Output> softmax_gradient(const Node& node, std::span<const Output> grads) {
  return {softmax_grad(grads[0], node.output())};
}

std::vector<Output> softmax_grad_gradient(const Node& node, std::span<const Output> grads) {
  const Output dy = node.input(0), y = node.input(1), g = grads[0];
  const auto row_sum = [](Output x) { return reduce_sum(x, {-1}, ReducedAxes::kKept); };
  return {softmax_grad(g, y), g * (dy - row_sum(dy * y)) - dy * row_sum(g * y)};
}

template <class T>
BELFRY_KERNEL void divide(std::int64_t n, T divisor, T* y) {
  for (std::int64_t i = 0; i < n; ++i) y[i] /= divisor;
}

template <class T>
void softmax_row(const T* x, std::int64_t n, T* y) {
  const T largest = kernels::largest_of_row(x, n);
  kernels::exp_less(x, largest, n, y);
  divide(n, kernels::sum(y, n), y);
}

template <class T>
BELFRY_KERNEL void multiply(const T* a, const T* b, std::int64_t n, T* c) {
  BELFRY_INDEPENDENT
  for (std::int64_t i = 0; i < n; ++i) c[i] = a[i] * b[i];
}

template <class T>
BELFRY_KERNEL void multiply_less(const T* a, const T* b, T shift, std::int64_t n, T* c) {
  BELFRY_INDEPENDENT
  for (std::int64_t i = 0; i < n; ++i) c[i] = a[i] * (b[i] - shift);
}

template <class T>
void softmax_grad_row(const T* dy, const T* y, std::int64_t n, T* dx) {
  multiply(dy, y, n, dx);
  multiply_less(y, dy, kernels::sum(dx, n), n, dx);
}

template <class T>
void plain_softmax_row(const T* x, std::int64_t n, T* y) {
  T largest = x[0], sum = 0;
  for (std::int64_t i = 0; i < n; ++i)
    if (x[i] > largest) largest = x[i];
  for (std::int64_t i = 0; i < n; ++i) sum += std::exp(x[i] - largest);
  for (std::int64_t i = 0; i < n; ++i) y[i] = std::exp(x[i] - largest) / sum;
}

template <class T>
void plain_softmax_grad_row(const T* dy, const T* y, std::int64_t n, T* dx) {
  T sum = 0;
  for (std::int64_t i = 0; i < n; ++i) sum += dy[i] * y[i];
  for (std::int64_t i = 0; i < n; ++i) dx[i] = y[i] * (dy[i] - sum);
}

KernelRun softmax_cpu(KernelPlan& plan) {
  return row_kernel<1>(plan, [](auto... row) { softmax_row(row...); });
}
KernelRun softmax_reference(KernelPlan& plan) {
  return row_kernel<1>(plan, [](auto... row) { plain_softmax_row(row...); });
}
KernelRun softmax_grad_cpu(KernelPlan& plan) {
  return row_kernel<2>(plan, [](auto... row) { softmax_grad_row(row...); });
}
KernelRun softmax_grad_reference(KernelPlan& plan) {
  return row_kernel<2>(plan, [](auto... row) { plain_softmax_grad_row(row...); });
}

}  // namespace

const Op kSoftmax{.name = "Softmax",
                  .inputs = 1,
                  .shape = softmax_shape,
                  .gradient = softmax_gradient,
                  .split = WorkSplit::kRows,
                  .shards = by_rows<1>,
                  .in_place = InPlace::kFirst,
                  .cpu = softmax_cpu,
                  .reference = softmax_reference,
                  .autocast = Autocast::kFull};

const Op kSoftmaxGrad{.name = "SoftmaxGrad",
                      .inputs = 2,
                      .shape = softmax_grad_shape,
                      .gradient = softmax_grad_gradient,
                      .split = WorkSplit::kRows,
                      .shards = by_rows<3>,
                      .cpu = softmax_grad_cpu,
                      .reference = softmax_grad_reference};

Output softmax(Output x, At at) { return x.graph().add(kSoftmax, {x}, at).output(); }

}  // namespace belfry
