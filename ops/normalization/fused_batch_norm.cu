// Batch normalisation with the casts, the sum and the ReLU around it.
#include "belfry/framework/cuda/kernels/gpu_kernel.h"
#include "belfry/framework/cuda/kernels/pointwise.h"
#include "belfry/ops/normalization/batch_norm.h"
#include "belfry/ops/normalization/batch_norm_kernels.cuh"
#include "belfry/ops/normalization/fused_batch_norm.h"

namespace belfry::cuda {
namespace {

template <bool trained, bool relu>
QueueRun forward(KernelPlan& plan) {
  const RowsOf x(plan.input(0).shape);
  const double epsilon = plan.options<BatchNormOptions>().epsilon;
  return visit_stored(plan.dtype(), [&]<class X>(X) -> QueueRun {
    using T = Wide<X>;
    if (trained) plan.workspace(parts_bytes<batch_norm::Spread<T>>(x));
    return [x, epsilon](const Pointers& p, Queue& queue) {
      constexpr std::size_t kInputs = trained ? 3 : 5;  // without a shortcut
      if constexpr (trained)
        batch_norm::find_moments<X>(queue, x, p.input<X>(0), p.output<T>(1), p.output<T>(2),
                                    nullptr, nullptr, p.workspace());
      batch_norm::normalise<X>(queue, x,
                               {.x = p.input<X>(0),
                                .shortcut = p.inputs() > kInputs ? p.input<X>(kInputs) : nullptr,
                                .gamma = p.input<T>(1),
                                .beta = p.input<T>(2),
                                .mean = trained ? p.output<T>(1) : p.input<T>(3),
                                .variance = trained ? p.output<T>(2) : p.input<T>(4),
                                .y = p.output<X>()},
                               epsilon, relu);
    };
  });
}

template <bool trained>
QueueRun backward(KernelPlan& plan) {
  const RowsOf x(plan.input(1).shape);
  const double epsilon = plan.options<BatchNormOptions>().epsilon;
  return visit_stored(plan.dtype(), [&]<class X>(X) -> QueueRun {
    using T = Wide<X>;
    plan.workspace(batch_norm::gradient_workspace<X>(x));
    return [x, epsilon](const Pointers& p, Queue& queue) {
      constexpr std::size_t kInputs = 5, kOutputs = trained ? 3 : 5;  // without y; without g
      batch_norm::find_gradient<X>(queue, x,
                                   {.dy = p.input<X>(0),
                                    .x = p.input<X>(1),
                                    .y = p.inputs() > kInputs ? p.input<X>(kInputs) : nullptr,
                                    .g = p.output<X>(p.outputs() > kOutputs ? kOutputs : 0),
                                    .dx = p.output<X>(),
                                    .gamma = p.input<T>(2),
                                    .mean = p.input<T>(3),
                                    .variance = p.input<T>(4),
                                    .dgamma = p.output<T>(1),
                                    .dbeta = p.output<T>(2),
                                    .dmean = trained ? nullptr : p.output<T>(3),
                                    .dvariance = trained ? nullptr : p.output<T>(4)},
                                   epsilon, p.workspace());
    };
  });
}

const GpuKernel fused_kernels[] = {
    {kFusedBatchNormTrain, forward<true, false>, kTakesHalf},
    {kFusedBatchNormTrainRelu, forward<true, true>, kTakesHalf},
    {kFusedBatchNormInference, forward<false, false>, kTakesHalf},
    {kFusedBatchNormInferenceRelu, forward<false, true>, kTakesHalf},
    {kFusedBatchNormTrainGrad, backward<true>, kTakesHalf},
    {kFusedBatchNormInferenceGrad, backward<false>, kTakesHalf},
};

}  // namespace
}  // namespace belfry::cuda
