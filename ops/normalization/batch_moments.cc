#include "belfry/ops/normalization/batch_moments.h"

#include "belfry/framework/core_ops/fill.h"
#include "belfry/ops/kernels/moments.h"
#include "belfry/ops/normalization/batch_norm.h"
#include "belfry/ops/operand.h"

namespace belfry {
namespace {

OutputTypes moments_shape(const ShapeContext& c) {
  c.require_floating(0);
  const Shape& x = c.input(0);
  c.require(x.rank() >= 2, "needs images or rows, but the shape is ", x);
  const Shape channels{x.back()};
  return {channels, channels, Shape{}};
}

// dx = (dmean + 2 dvariance (x - mean)) / n, which is an affine function of each channel.
std::vector<Output> moments_gradient(const Node& node, std::span<const Output> grads) {
  const Output mean = node.output(0), count = node.output(2);
  return {batch_norm_inference(node.input(0), grads[1] * 2.0 / count, grads[0] / count, mean,
                               fill_like(mean, 1), {.epsilon = 0})};
}

KernelRun moments_cpu(KernelPlan& plan) {
  const Shape& x = plan.input(0).shape;
  const std::int64_t rows = x.product(0, x.rank() - 1), channels = x.back();
  plan.workspace(kernels::moment_scratch(rows, channels) *
                 static_cast<std::int64_t>(size_of(plan.dtype())));
  return visit_floating(plan.dtype(), [=]<class T>(T) -> KernelRun {
    return [=](const Pointers& p) {
      kernels::moments(p.input<T>(0), rows, channels, p.output<T>(0), p.output<T>(1),
                       reinterpret_cast<T*>(p.workspace()));
      p.output<T>(2)[0] = static_cast<T>(rows);
    };
  });
}

// Channel by channel, in f64.
KernelRun moments_reference(KernelPlan& plan) {
  const Shape& x = plan.input(0).shape;
  const std::int64_t rows = x.product(0, x.rank() - 1), channels = x.back();
  return visit_floating(plan.dtype(), [=]<class T>(T) -> KernelRun {
    return [=](const Pointers& p) {
      const auto count = static_cast<double>(rows);
      for (std::int64_t c = 0; c < channels; ++c) {
        double sum = 0, squares = 0;
        for (std::int64_t i = c; i < rows * channels; i += channels) sum += p.input<T>(0)[i];
        for (std::int64_t i = c; i < rows * channels; i += channels) {
          const double distance = p.input<T>(0)[i] - sum / count;
          squares += distance * distance;
        }
        p.output<T>(0)[c] = static_cast<T>(sum / count);
        p.output<T>(1)[c] = static_cast<T>(squares / count);
      }
      p.output<T>(2)[0] = static_cast<T>(count);
    };
  });
}

}  // namespace

const Op kBatchMoments{.name = "BatchMoments",
                       .inputs = 1,
                       .shape = moments_shape,
                       .gradient = moments_gradient,
                       .cpu = moments_cpu,
                       .reference = moments_reference,
                       .autocast = Autocast::kFull};

CountedMoments batch_moments(Output x, At at) {
  Node& node = x.graph().add(kBatchMoments, {x}, at);
  return {node.output(0), node.output(1), node.output(2)};
}

}  // namespace belfry
