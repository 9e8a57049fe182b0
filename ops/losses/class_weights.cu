// Weights of classes: a thread takes a label.
#include "belfry/framework/cuda/kernels/gpu_kernel.h"
#include "belfry/framework/cuda/kernels/indices.h"
#include "belfry/framework/cuda/kernels/launch.h"
#include "belfry/framework/kernels/math.h"
#include "belfry/ops/kernels/labels.h"
#include "belfry/ops/losses/class_weights.h"

namespace belfry::cuda {
namespace {

template <class T>
struct WeightOfLabel {
  using Shared = Nothing;
  const T* weights;
  Indices labels;
  std::int64_t rows, classes, ignored;
  T* y;

  BELFRY_HD void operator()(const Block& block, Shared&) const {
    block.each([&](int thread) {
      const std::int64_t row = block.index * block.threads + thread;
      if (row >= rows) return;
      T weight = 0;
      if (ignored == kNoLabel || labels[row] != ignored) {
        const std::int64_t label = labels.below(classes, row);
        weight = math::Format<T>::kNan;
        if (label >= 0) weight = weights[label];
      }
      y[row] = weight;
    });
  }
};

QueueRun weights_of_labels(KernelPlan& plan) {
  const std::int64_t classes = plan.input(0).shape[0], rows = plan.output().shape[0];
  const auto refusal = std::make_shared<const Refusal>(
      [&node = plan.node(), classes](std::int64_t row, std::int64_t label) {
        kernels::refuse_label(node, row, label, classes);
      });
  return visit_floating(plan.dtype(), [&]<class T>(T) -> QueueRun {
    return [=, ignored = plan.options<ClassWeightsOptions>().ignored,
            wide = plan.input(1).dtype == DType::kI64](const KernelPointers& p,
                                                       KernelQueue& queue) {
      const Indices labels{p.input<void>(1), wide, queue.fault(refusal)};
      launch(queue, WeightOfLabel<T>{p.input<T>(0), labels, rows, classes, ignored, p.output<T>()},
             grid_for(rows));
    };
  });
}

const GpuKernel weights(kClassWeights, weights_of_labels);

}  // namespace
}  // namespace belfry::cuda
