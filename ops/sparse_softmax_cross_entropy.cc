#include "belfry/ops/sparse_softmax_cross_entropy.h"

#include <cmath>

#include "belfry/framework/core_ops/fill.h"
#include "belfry/framework/graph/shards.h"
#include "belfry/framework/kernels/math.h"
#include "belfry/framework/kernels/reduce.h"
#include "belfry/ops/kernels/exp_less.h"
#include "belfry/ops/kernels/labels.h"
#include "belfry/ops/operand.h"
#include "belfry/ops/reduce.h"
#include "belfry/ops/reshape.h"
#include "belfry/ops/softmax.h"

namespace belfry {
namespace {

OutputTypes loss_shape(const ShapeContext& c) {
  kernels::require_labels(c);
  const Shape &logits = c.input(0), &labels = c.input(1);
  return {Shape{logits[0] == kUnknown ? labels[0] : logits[0]}};
}

OutputTypes grad_shape(const ShapeContext& c) {
  kernels::require_labels(c);
  c.require_rank(2, 1);
  c.require(c.dtype(2) == c.dtype(0) && c.input(2).compatible(Shape{c.input(0)[0]}), "logits are ",
            c.type(0), ", but the gradient is ", c.type(2));
  return {c.type(0)};
}

Output loss_grad(Output logits, Output labels, Output dy) {
  return logits.graph().add(kSparseSoftmaxCrossEntropyGrad, {logits, labels, dy}).output();
}

std::vector<Output> loss_gradient(const Node& node, std::span<const Output> grads) {
  return {loss_grad(node.input(0), node.input(1), grads[0]), {}};
}

// d = (softmax - one_hot) dy for each row.
std::vector<Output> grad_gradient(const Node& node, std::span<const Output> grads) {
  const Output logits = node.input(0), labels = node.input(1), dy = node.input(2), g = grads[0];
  const Output y = softmax(logits);
  const Output jacobian = logits.graph().add(kSoftmaxGrad, {g, y}).output();
  return {jacobian * reshape(dy, {kUnknown, 1}),
          {},
          reduce_sum(g * loss_grad(logits, labels, fill_like(dy, 1)), {-1})};
}

// Rows are cut into blocks whose sums of exponentials are added, so that a buffer on the stack
// holds them.
constexpr std::int64_t kBufferSize = 1024;

template <class T>
T largest(const T* x, std::int64_t n) {
  T result;
  kernels::row_maxima(x, n, &result, 0, 1);
  return result;
}

template <class T>
T sum_of_exp(const T* x, T shift, std::int64_t n) {
  T buffer[kBufferSize], sum = 0;
  for (std::int64_t i = 0; i < n; i += kBufferSize) {
    const std::int64_t count = n - i < kBufferSize ? n - i : kBufferSize;
    kernels::exp_less(x + i, shift, count, buffer);
    sum += kernels::sum(buffer, count);
  }
  return sum;
}

template <class T>
T loss_of_row(const T* x, std::int64_t n, std::int64_t label) {
  const T shift = largest(x, n);
  return math::log(sum_of_exp(x, shift, n)) - (x[label] - shift);
}

template <class T>
BELFRY_KERNEL void scale(std::int64_t n, T divisor, T factor, T* y) {
  for (std::int64_t i = 0; i < n; ++i) y[i] = y[i] / divisor * factor;
}

template <class T>
void grad_of_row(const T* x, std::int64_t n, std::int64_t label, T dy, T* dx) {
  const T shift = largest(x, n);
  kernels::exp_less(x, shift, n, dx);
  const T sum = kernels::sum(dx, n);
  // Before the scaling loop, which overwrites it. Near 1, p - 1 is exact.
  const T at_label = (dx[label] / sum - 1) * dy;
  scale(n, sum, dy, dx);
  dx[label] = at_label;
}

template <class T>
T plain_loss_of_row(const T* x, std::int64_t n, std::int64_t label) {
  T shift = x[0], sum = 0;
  for (std::int64_t i = 0; i < n; ++i)
    if (x[i] > shift) shift = x[i];
  for (std::int64_t i = 0; i < n; ++i) sum += std::exp(x[i] - shift);
  return std::log(sum) - (x[label] - shift);
}

template <class T>
void plain_grad_of_row(const T* x, std::int64_t n, std::int64_t label, T dy, T* dx) {
  const T log_sum = plain_loss_of_row(x, n, label) + x[label];
  for (std::int64_t i = 0; i < n; ++i)
    dx[i] = (std::exp(x[i] - log_sum) - static_cast<T>(i == label)) * dy;
}

// loss(x, n, label) of each row.
template <class T, class Label, class Loss>
KernelRun loss_kernel(const KernelPlan& plan, Loss loss) {
  const Node* const node = &plan.node();
  return [node, classes = plan.input(0).shape[1], loss](const Pointers& p) {
    for (std::int64_t row = p.begin(); row < p.end(); ++row) {
      const std::int64_t label = kernels::checked_label<Label>(*node, p, row, classes);
      p.output<T>()[row] = loss(p.input<T>(0) + row * classes, classes, label);
    }
  };
}

// grad(x, n, label, dy, dx) of each row.
template <class T, class Label, class Grad>
KernelRun grad_kernel(const KernelPlan& plan, Grad grad) {
  const Node* const node = &plan.node();
  return [node, classes = plan.input(0).shape[1], grad](const Pointers& p) {
    for (std::int64_t row = p.begin(); row < p.end(); ++row) {
      const std::int64_t label = kernels::checked_label<Label>(*node, p, row, classes);
      grad(p.input<T>(0) + row * classes, classes, label, p.input<T>(2)[row],
           p.output<T>() + row * classes);
    }
  };
}

KernelRun loss_cpu(KernelPlan& plan) {
  return kernels::visit_labelled(plan, [&]<class T, class Label>(T, Label) {
    return loss_kernel<T, Label>(plan, loss_of_row<T>);
  });
}
KernelRun loss_reference(KernelPlan& plan) {
  return kernels::visit_labelled(plan, [&]<class T, class Label>(T, Label) {
    return loss_kernel<T, Label>(plan, plain_loss_of_row<T>);
  });
}
KernelRun grad_cpu(KernelPlan& plan) {
  return kernels::visit_labelled(plan, [&]<class T, class Label>(T, Label) {
    return grad_kernel<T, Label>(plan, grad_of_row<T>);
  });
}
KernelRun grad_reference(KernelPlan& plan) {
  return kernels::visit_labelled(plan, [&]<class T, class Label>(T, Label) {
    return grad_kernel<T, Label>(plan, plain_grad_of_row<T>);
  });
}

}  // namespace

const Op kSparseSoftmaxCrossEntropy{.name = "SparseSoftmaxCrossEntropy",
                                    .inputs = 2,
                                    .shape = loss_shape,
                                    .gradient = loss_gradient,
                                    .split = Split::kRows,
                                    .shards = by_rows<3>,
                                    .cpu = loss_cpu,
                                    .reference = loss_reference,
                                    .autocast = Autocast::kFull};

const Op kSparseSoftmaxCrossEntropyGrad{.name = "SparseSoftmaxCrossEntropyGrad",
                                        .inputs = 3,
                                        .shape = grad_shape,
                                        .gradient = grad_gradient,
                                        .split = Split::kRows,
                                        .shards = by_rows<7>,
                                        .cpu = grad_cpu,
                                        .reference = grad_reference};

Output sparse_softmax_cross_entropy(Output logits, Output labels, At at) {
  return logits.graph().add(kSparseSoftmaxCrossEntropy, {logits, labels}, at).output();
}

Output cross_entropy(Output logits, Output labels, At at) {
  return reduce_mean(sparse_softmax_cross_entropy(logits, labels, At(at.site)), {}, at);
}

}  // namespace belfry
