// Batch normalisation, and its steps over several towers.
#include "belfry/framework/cuda/kernels/fill.h"
#include "belfry/framework/cuda/kernels/gpu_kernel.h"
#include "belfry/framework/cuda/kernels/pointwise.h"
#include "belfry/framework/cuda/kernels/variants.h"
#include "belfry/ops/normalization/batch_moments.h"
#include "belfry/ops/normalization/batch_norm.h"
#include "belfry/ops/normalization/batch_norm_kernels.cuh"
#include "belfry/ops/normalization/batch_statistics.h"
#include "belfry/ops/normalization/fused_batch_norm.h"

namespace belfry::cuda {
namespace {

// A plan's node may also have the casts, the sum and the ReLU around a batch norm
// (fused_batch_norm.h).
template <bool trained, bool relu>
QueueRun forward(KernelPlan& plan) {
  const RowsOf x(plan.input(0).shape);
  const double epsilon = plan.options<BatchNormOptions>().epsilon;
  return visit_stored(plan.dtype(), [&]<class X>(X) -> QueueRun {
    using T = Wide<X>;
    if (trained) plan.workspace(parts_bytes<batch_norm::Spread<T>>(x));
    return [x, epsilon](const KernelPointers& p, KernelQueue& queue) {
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

const Variant mask_from_x("batch_norm.mask_from_x");
const Variant sum_of_gradients("batch_norm.sum_of_gradients");

template <bool trained>
QueueRun backward(KernelPlan& plan) {
  const RowsOf x(plan.input(1).shape);
  const double epsilon = plan.options<BatchNormOptions>().epsilon;
  const FusedGradientInputs of = fused_gradient_inputs(plan);
  constexpr std::size_t kOutputs = trained ? 3 : 5;  // without g
  const bool gives_g = plan.outputs() > kOutputs;
  const bool masks = of.beta && !of.addend && !gives_g && mask_from_x.on();
  return visit_stored(plan.dtype(), [&]<class X>(X) -> QueueRun {
    using T = Wide<X>;
    plan.workspace(batch_norm::gradient_workspace<X>(x));
    return [=, sums = sum_of_gradients.on()](const KernelPointers& p, KernelQueue& queue) {
      batch_norm::Backward<X> backward{.dy = p.input<X>(0),
                                       .x = p.input<X>(1),
                                       .addend = of.addend ? p.input<X>(of.addend) : nullptr,
                                       .y = of.y && !masks ? p.input<X>(of.y) : nullptr,
                                       .g = p.output<X>(gives_g ? kOutputs : 0),
                                       .dx = p.output<X>(),
                                       .gamma = p.input<T>(2),
                                       .beta = masks ? p.input<T>(of.beta) : nullptr,
                                       .mean = p.input<T>(3),
                                       .variance = p.input<T>(4),
                                       .dgamma = p.output<T>(1),
                                       .dbeta = p.output<T>(2),
                                       .dmean = trained ? nullptr : p.output<T>(3),
                                       .dvariance = trained ? nullptr : p.output<T>(4)};
      if (backward.addend && !sums) {
        Map<functors::Add, X, 2> sum{
            .count = x.rows * x.channels, .y = backward.g, .x = {backward.dy, backward.addend}};
        launch_map(queue, sum);
        backward.dy = backward.g;
        backward.addend = nullptr;
      }
      batch_norm::find_gradient<X>(queue, x, backward, epsilon, p.workspace());
    };
  });
}

QueueRun batch_moments(KernelPlan& plan) {
  const RowsOf x(plan.input(0).shape);
  return visit_floating(plan.dtype(), [&]<class T>(T) -> QueueRun {
    plan.workspace(parts_bytes<batch_norm::Spread<T>>(x));
    return [x](const KernelPointers& p, KernelQueue& queue) {
      if (x.rows == 0) {
        const std::int64_t bytes = x.channels * static_cast<std::int64_t>(sizeof(T));
        fill_zeros(queue, p.output<T>(0), bytes);
        fill_zeros(queue, p.output<T>(1), bytes);
      }
      if (x.rows == 0 || x.channels == 0)
        return fill_one(queue, static_cast<T>(x.rows), p.output<T>(2));
      batch_norm::find_moments<T>(queue, x, p.input<T>(0), p.output<T>(0), p.output<T>(1),
                                  p.output<T>(2), p.inputs() > 1 ? p.input<T>(1) : nullptr,
                                  p.workspace());
    };
  });
}

// Tiles of 128 rows and 32 channels: a thread keeps its channel, whose factors it computes once.
struct Tiles {
  static constexpr int kColumns = 32, kLines = 8, kRows = 128, kThreads = kColumns * kLines;
  std::int64_t rows, channels;

  Grid grid() const {
    return {.blocks = (rows + kRows - 1) / kRows * ((channels + kColumns - 1) / kColumns),
            .threads = kThreads};
  }
  // Gets f from prepare(channel) and calls f(i) for each element i of the channel.
  template <class Prepare>
  BELFRY_HD void each(const Block& block, const Prepare& prepare) const {
    const std::int64_t across = (channels + kColumns - 1) / kColumns;
    const std::int64_t channel = block.index % across * kColumns,
                       row = block.index / across * kRows;
    block.each([&](int thread) {
      const std::int64_t c = channel + thread % kColumns;
      if (c >= channels) return;
      const auto f = prepare(c);
      for (int line = thread / kColumns; line < kRows && row + line < rows; line += kLines)
        f((row + line) * channels + c);
    });
  }
};

// y = (x - mean) slope + offset.
template <class T>
struct StatisticsGradient {
  using Shared = Nothing;
  Tiles tiles;
  const T *x, *dmean, *dvariance, *mean, *count, *weight;
  T* dx;

  BELFRY_HD void operator()(const Block& block, Shared&) const {
    tiles.each(block, [&](std::int64_t c) {
      const bool counts = *weight != 0;
      const T slope = counts ? 2 * dvariance[c] / *count : T(0);
      const T offset = counts ? dmean[c] / *count : T(0);
      return [this, counts, slope, offset, middle = mean[c]](std::int64_t i) {
        dx[i] = counts ? (x[i] - middle) * slope + offset : T(0);
      };
    });
  }
};

QueueRun statistics_gradient(KernelPlan& plan) {
  return visit_floating(plan.dtype(), [&]<class T>(T) -> QueueRun {
    return [x = RowsOf(plan.input(0).shape)](const KernelPointers& p, KernelQueue& queue) {
      const StatisticsGradient<T> kernel{{x.rows, x.channels}, p.input<T>(0), p.input<T>(1),
                                         p.input<T>(2),        p.input<T>(3), p.input<T>(4),
                                         p.input<T>(5),        p.output<T>()};
      launch(queue, kernel, kernel.tiles.grid());
    };
  });
}

const GpuKernel kernels_of_ops[] = {
    {kBatchNormTrain, forward<true, false>},
    {kFusedBatchNormTrain, forward<true, false>, kTakesHalf},
    {kFusedBatchNormTrainRelu, forward<true, true>, kTakesHalf},
    {kBatchNormInference, forward<false, false>},
    {kFusedBatchNormInference, forward<false, false>, kTakesHalf},
    {kFusedBatchNormInferenceRelu, forward<false, true>, kTakesHalf},
    {kBatchNormTrainGrad, backward<true>},
    {kFusedBatchNormTrainGrad, backward<true>, kTakesHalf},
    {kBatchNormInferenceGrad, backward<false>},
    {kFusedBatchNormInferenceGrad, backward<false>, kTakesHalf},
    {kBatchMoments, batch_moments},
    {kBatchStatisticsGrad, statistics_gradient},
};

}  // namespace
}  // namespace belfry::cuda
