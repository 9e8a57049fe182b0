// Logarithms of sums of exponentials: a block takes a row.
#include "belfry/framework/cuda/kernels/gpu_kernel.h"
#include "belfry/framework/cuda/kernels/launch.h"
#include "belfry/framework/cuda/kernels/rows.h"
#include "belfry/framework/kernels/math.h"
#include "belfry/ops/pointwise/log_softmax.h"

namespace belfry::cuda {
namespace {

template <class T>
struct LogSumShared {
  FoldShared<T> fold;
  T shift, sum;
};

// Sets shared.shift to the largest of x, or to 0 if that is infinite or NaN and `finite` is asked
// for; and shared.sum to the sum of e^(x - shift). Sums of chunks are added one after the other, as
// on hosts.
template <class T>
BELFRY_HD void sum_exponentials(const Block& block, LogSumShared<T>& shared, const T* x,
                                std::int64_t n, bool finite) {
  fold(block, shared.fold, kernels::Max{}, 0, n, [&](std::int64_t i) { return x[i]; });
  block.each([&](int thread) {
    if (thread > 0) return;
    const T largest = shared.fold.total;
    shared.shift = !finite || math::abs(largest) < math::Format<T>::kInfinity ? largest : T(0);
    shared.sum = 0;
  });
  for (std::int64_t first = 0; first < n; first += kChunk) {
    fold(block, shared.fold, kernels::Add{}, first, first + kChunk < n ? first + kChunk : n,
         [&](std::int64_t i) { return math::exp(x[i] - shared.shift); });
    block.each([&](int thread) {
      if (thread == 0) shared.sum += shared.fold.total;
    });
  }
}

template <class T>
struct LogSoftmaxRow {
  using Shared = LogSumShared<T>;
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
            [&](int, std::int64_t i) { y[at + i] = (x[at + i] - shared.shift) - shared.sum; });
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
  using Shared = LogSumShared<T>;
  const T* x;
  std::int64_t columns;
  T* y;

  BELFRY_HD void operator()(const Block& block, Shared& shared) const {
    sum_exponentials(block, shared, x + block.index * columns, columns, true);
    block.each([&](int thread) {
      if (thread == 0) y[block.index] = shared.shift + math::log(shared.sum);
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
