#include "belfry/ops/sparse_softmax_cross_entropy.h"

#include <algorithm>
#include <cmath>

#include "belfry/framework/base/require.h"
#include "belfry/framework/core_ops/fill.h"
#include "belfry/framework/graph/scopes.h"
#include "belfry/framework/graph/shards.h"
#include "belfry/framework/graph/stored_options.h"
#include "belfry/framework/kernels/math.h"
#include "belfry/framework/kernels/reduce.h"
#include "belfry/ops/cast.h"
#include "belfry/ops/cross_entropy_with_gradient.h"
#include "belfry/ops/kernels/exp_less.h"
#include "belfry/ops/kernels/labels.h"
#include "belfry/ops/operand.h"
#include "belfry/ops/reduce.h"
#include "belfry/ops/relu.h"
#include "belfry/ops/reshape.h"
#include "belfry/ops/softmax.h"
#include "belfry/ops/square.h"

namespace belfry {
namespace {

void require_loss(const ShapeContext& c) {
  kernels::require_labels(c);
  const double smoothing = c.options<CrossEntropyOptions>().smoothing;
  c.require(smoothing >= 0 && smoothing <= 1, "smoothing must be from 0 to 1, not ", smoothing);
}

OutputTypes loss_shape(const ShapeContext& c) {
  require_loss(c);
  const Shape &logits = c.input(0), &labels = c.input(1);
  return {Shape{logits[0] == kUnknownSize ? labels[0] : logits[0]}};
}

OutputTypes grad_shape(const ShapeContext& c) {
  require_loss(c);
  c.require_rank(2, 1);
  c.require(c.dtype(2) == c.dtype(0) && c.input(2).compatible(Shape{c.input(0)[0]}), "logits are ",
            c.type(0), ", but the gradient is ", c.type(2));
  return {c.type(0)};
}

Output loss_grad(Output logits, Output labels, Output dy, const Node& of) {
  return logits.graph()
      .add(kSparseSoftmaxCrossEntropyGrad, {logits, labels, dy}, {}, of.raw_options())
      .output();
}

std::vector<Output> loss_gradient(const Node& node, std::span<const Output> grads) {
  return {loss_grad(node.input(0), node.input(1), grads[0], node), {}};
}

// softmax(logits), but 0 in rows whose labels are ignored, whatever their logits: with a smoothing
// of 1 the gradient is softmax - 1/c in rows that count.
Output counted_softmax(Output logits, Output labels, CrossEntropyOptions options) {
  if (options.ignored == kNoLabel) return softmax(logits);
  const auto ignored = static_cast<double>(options.ignored);
  const Output is_ignored = relu(1 - square(cast(labels, logits.dtype()) - ignored));
  options.smoothing = 1;
  const Output less_mean =
      logits.graph()
          .add(kSparseSoftmaxCrossEntropyGrad, {logits, labels, fill_like(is_ignored, 1)}, {},
               NodeOptions(options))
          .output();
  const auto classes = static_cast<double>(logits.shape()[1]);
  return less_mean + reshape((1 - is_ignored) / classes, {kUnknownSize, 1});
}

// d = (softmax - target) dy for each row that counts.
std::vector<Output> grad_gradient(const Node& node, std::span<const Output> grads) {
  const Output logits = node.input(0), labels = node.input(1), dy = node.input(2), g = grads[0];
  const Output y = counted_softmax(logits, labels, node.options<CrossEntropyOptions>());
  const Output jacobian = logits.graph().add(kSoftmaxGrad, {g, y}).output();
  return {jacobian * reshape(dy, {kUnknownSize, 1}),
          {},
          reduce_sum(g * loss_grad(logits, labels, fill_like(dy, 1), node), {-1})};
}

template <class T>
BELFRY_KERNEL void less(const T* x, T shift, std::int64_t n, T* y) {
  for (std::int64_t i = 0; i < n; ++i) y[i] = x[i] - shift;
}

template <class T>
T mean_less(const T* x, T shift, std::int64_t n) {
  T buffer[kernels::kExponentials], sum = 0;
  for (std::int64_t i = 0; i < n; i += kernels::kExponentials) {
    const std::int64_t count = n - i < kernels::kExponentials ? n - i : kernels::kExponentials;
    less(x + i, shift, count, buffer);
    sum += kernels::sum(buffer, count);
  }
  return sum / static_cast<T>(n);
}

template <class T>
T loss_of_row(const T* x, std::int64_t n, std::int64_t label, T smoothing) {
  const T shift = kernels::largest_of_row(x, n);
  const T loss =
      math::log(kernels::sum_of_exponentials(x, shift, n)) - (1 - smoothing) * (x[label] - shift);
  return smoothing == 0 ? loss : loss - smoothing * mean_less(x, shift, n);
}

// (y / divisor - share) factor, where share is the target of each class but the label.
template <class T>
BELFRY_KERNEL void scale(std::int64_t n, T divisor, T share, T factor, T* y) {
  for (std::int64_t i = 0; i < n; ++i) y[i] = (y[i] / divisor - share) * factor;
}

template <class T>
void grad_of_row(const T* x, std::int64_t n, std::int64_t label, T smoothing, T dy, T* dx) {
  const T shift = kernels::largest_of_row(x, n), share = smoothing / static_cast<T>(n);
  kernels::exp_less(x, shift, n, dx);
  const T sum = kernels::sum(dx, n);
  // Must come before the scaling loop, which overwrites dx. Near 1, p - 1 is exact.
  const T at_label = (dx[label] / sum - (1 - smoothing + share)) * dy;
  scale(n, sum, share, dy, dx);
  dx[label] = at_label;
}

template <class T>
T plain_log_sum(const T* x, std::int64_t n) {
  T shift = x[0], sum = 0;
  for (std::int64_t i = 0; i < n; ++i)
    if (x[i] > shift) shift = x[i];
  for (std::int64_t i = 0; i < n; ++i) sum += std::exp(x[i] - shift);
  return std::log(sum) + shift;
}

// The target of class i.
template <class T>
T plain_target(std::int64_t i, std::int64_t label, std::int64_t n, T smoothing) {
  return (i == label ? 1 - smoothing : T(0)) + smoothing / static_cast<T>(n);
}

template <class T>
T plain_loss_of_row(const T* x, std::int64_t n, std::int64_t label, T smoothing) {
  const T log_sum = plain_log_sum(x, n);
  T loss = 0;
  for (std::int64_t i = 0; i < n; ++i) {
    const T target = plain_target(i, label, n, smoothing);
    if (target > 0) loss += target * (log_sum - x[i]);
  }
  return loss;
}

template <class T>
void plain_grad_of_row(const T* x, std::int64_t n, std::int64_t label, T smoothing, T dy, T* dx) {
  const T log_sum = plain_log_sum(x, n);
  for (std::int64_t i = 0; i < n; ++i)
    dx[i] = (std::exp(x[i] - log_sum) - plain_target(i, label, n, smoothing)) * dy;
}

// Calls loss(x, n, label, smoothing) for each row.
template <class T, class Label, class Loss>
KernelRun loss_kernel(const KernelPlan& plan, Loss loss) {
  const Node* const node = &plan.node();
  return [node, classes = plan.input(0).shape[1], options = plan.options<CrossEntropyOptions>(),
          loss](const KernelPointers& p) {
    for (std::int64_t row = p.begin(); row < p.end(); ++row) {
      T& y = p.output<T>()[row];
      y = 0;
      if (options.ignores(p.input<Label>(1)[row])) continue;
      const std::int64_t label = kernels::checked_label<Label>(*node, p, row, classes);
      y = loss(p.input<T>(0) + row * classes, classes, label, static_cast<T>(options.smoothing));
    }
  };
}

// Calls grad(x, n, label, smoothing, dy, dx) for each row.
template <class T, class Label, class Grad>
KernelRun grad_kernel(const KernelPlan& plan, Grad grad) {
  const Node* const node = &plan.node();
  return [node, classes = plan.input(0).shape[1], options = plan.options<CrossEntropyOptions>(),
          grad](const KernelPointers& p) {
    for (std::int64_t row = p.begin(); row < p.end(); ++row) {
      T* const dx = p.output<T>() + row * classes;
      if (options.ignores(p.input<Label>(1)[row])) {
        std::fill_n(dx, classes, T(0));
        continue;
      }
      const std::int64_t label = kernels::checked_label<Label>(*node, p, row, classes);
      grad(p.input<T>(0) + row * classes, classes, label, static_cast<T>(options.smoothing),
           p.input<T>(2)[row], dx);
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
                                    .split = WorkSplit::kRows,
                                    .shards = by_rows<3>,
                                    .fuse = fuse_loss,
                                    .cpu = loss_cpu,
                                    .reference = loss_reference,
                                    .autocast = Autocast::kFull};

const Op kSparseSoftmaxCrossEntropyGrad{.name = "SparseSoftmaxCrossEntropyGrad",
                                        .inputs = 3,
                                        .shape = grad_shape,
                                        .gradient = grad_gradient,
                                        .split = WorkSplit::kRows,
                                        .shards = by_rows<7>,
                                        .fuse = fuse_loss_gradient,
                                        .cpu = grad_cpu,
                                        .reference = grad_reference};
const StoredOptions<CrossEntropyOptions> kStoredSparseSoftmaxCrossEntropy(
    kSparseSoftmaxCrossEntropy, kSparseSoftmaxCrossEntropyGrad);

Output sparse_softmax_cross_entropy(Output logits, Output labels, CrossEntropyOptions options,
                                    At at) {
  return logits.graph()
      .add(kSparseSoftmaxCrossEntropy, {logits, labels}, at, NodeOptions(options))
      .output();
}

Output cross_entropy(Output logits, Output labels, CrossEntropyOptions options, At at) {
  require(options.ignored == kNoLabel, "cross_entropy (built at ",
          logits.graph().scopes().site_or(at.site), "): labels ", options.ignored,
          " are to be ignored, and their number differs from device to device; "
          "cross_entropy(tower, logits, labels, {.ignored = ",
          options.ignored,
          "}) is the mean over the labels that count, and reduce_mean of "
          "sparse_softmax_cross_entropy that over all, where ignored ones have loss 0");
  return reduce_mean(sparse_softmax_cross_entropy(logits, labels, options, At(at.site)), {}, at);
}

}  // namespace belfry
