// Logarithms of sums of exponentials: a block takes a row.
#include "belfry/framework/cuda/kernels/gpu_kernel.h"
#include "belfry/framework/cuda/kernels/launch.h"
#include "belfry/framework/cuda/kernels/rows.h"
#include "belfry/framework/kernels/math.h"
#include "belfry/ops/pointwise/log_softmax.h"

namespace belfry::cuda {
namespace {

// Sets shared.largest to the largest of x, or to 0 if that is infinite or NaN and `finite` is asked
// for; and shared.sum to the sum of e^(x - largest).
template <class T>
BELFRY_HD void sum_exponentials(const Block& block, RowShared<T>& shared, const T* x,
                                std::int64_t n, bool finite) {
  find_largest(
      block, shared, [&](std::int64_t i) { return x[i]; }, n);
  block.each([&](int thread) {
    if (thread > 0 || !finite || math::abs(shared.largest) < math::Format<T>::kInfinity) return;
    shared.largest = 0;
  });
  sum_chunks(
      block, shared, n, [&](std::int64_t i) { return math::exp(x[i] - shared.largest); },
      [](std::uint32_t, T) {});
}

template <class T>
struct LogSoftmaxRow {
  using Shared = RowShared<T>;
  const T* x;
  RowBlocks<1> by;
  T* y;

  BELFRY_HD void operator()(const Block& block, Shared& shared) const {
    const std::int64_t at = block.index * by.columns;
    sum_exponentials(block, shared, x + at, by.columns, false);
    block.each([&](int thread) {
      if (thread == 0) shared.sum = math::log(shared.sum);
    });
    by.each(block,
            [&](int, std::int64_t i) { y[at + i] = (x[at + i] - shared.largest) - shared.sum; });
  }
};

template <class T>
struct LogSoftmaxGradRow {
  using Shared = FoldShared<T>;
  const T *dy, *y;
  RowBlocks<1> by;
  T* dx;

  BELFRY_HD void operator()(const Block& block, Shared& shared) const {
    const std::int64_t at = block.index * by.columns;
    fold(block, shared, kernels::Add{}, 0, by.columns, [&](std::int64_t i) { return dy[at + i]; });
    by.each(block, [&](int, std::int64_t i) {
      dx[at + i] = dy[at + i] - math::exp(y[at + i]) * shared.total;
    });
  }
};

template <class T>
struct LogSumExpRow {
  using Shared = RowShared<T>;
  const T* x;
  std::int64_t columns;
  T* y;

  BELFRY_HD void operator()(const Block& block, Shared& shared) const {
    sum_exponentials(block, shared, x + block.index * columns, columns, true);
    block.each([&](int thread) {
      if (thread == 0) y[block.index] = shared.largest + math::log(shared.sum);
    });
  }
};

QueueRun log_softmax(KernelPlan& plan) {
  return visit_floating(plan.dtype(), [&]<class T>(T) -> QueueRun {
    return [by = rows_of(plan.output().shape)](const KernelPointers& p, KernelQueue& queue) {
      launch(queue, LogSoftmaxRow<T>{p.input<T>(0), by, p.output<T>()}, by.grid());
    };
  });
}

QueueRun log_softmax_grad(KernelPlan& plan) {
  return visit_floating(plan.dtype(), [&]<class T>(T) -> QueueRun {
    return [by = rows_of(plan.output().shape)](const KernelPointers& p, KernelQueue& queue) {
      launch(queue, LogSoftmaxGradRow<T>{p.input<T>(0), p.input<T>(1), by, p.output<T>()},
             by.grid());
    };
  });
}

QueueRun log_sum_exp(KernelPlan& plan) {
  return visit_floating(plan.dtype(), [&]<class T>(T) -> QueueRun {
    return [by = rows_of(plan.input(0).shape)](const KernelPointers& p, KernelQueue& queue) {
      launch(queue, LogSumExpRow<T>{p.input<T>(0), by.columns, p.output<T>()},
             {.blocks = by.rows, .threads = kFoldThreads});
    };
  });
}

const GpuKernel kernels_of_ops[] = {
    {kLogSoftmax, log_softmax},
    {kLogSoftmaxGrad, log_softmax_grad},
    {kLogSumExp, log_sum_exp},
};

}  // namespace
}  // namespace belfry::cuda
