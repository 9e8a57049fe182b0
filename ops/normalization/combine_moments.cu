#include <algorithm>

#include "belfry/framework/base/require.h"
#include "belfry/framework/cuda/kernels/gpu_kernel.h"
#include "belfry/framework/cuda/kernels/launch.h"
#include "belfry/framework/cuda/kernels/tree_order.h"
#include "belfry/ops/normalization/combine_moments.h"
#include "belfry/ops/normalization/spread.h"

namespace belfry::cuda {
namespace {

constexpr int kMostParts = 100;  // keeps parameters below 4 KiB
using Order = TreeOrder<1, kMostParts>;

template <class T>
struct Part {
  const T *mean, *squares, *count;
};

// Element i of the combined moments, for begin <= i < end, by the host's formulas in its order.
template <class T>
struct Combine {
  using Shared = Nothing;
  std::int64_t begin, end;
  T *mean, *variance, *count;
  Order order;
  Part<T> part[kMostParts];

  BELFRY_HD kernels::Spread<T> of_part(int k, std::int64_t i) const {
    const T number = *part[k].count;
    if (number == 0 || i >= end) return {number, 0, 0};
    return {number, part[k].mean[i], part[k].squares[i]};
  }

  BELFRY_HD void operator()(const Block& block, Shared&) const {
    block.each([&](int thread) {
      const std::int64_t i = begin + block.index * block.threads + thread;
      if (i > 0 && i >= end) return;
      kernels::Spread<T> stack[Order::kDepth] = {};
      int depth = 0;
      for (int k = 0; k < order.count; ++k) {
        kernels::Spread<T> sum = of_part(k, i);
        for (int n = 0; n < order.additions[k]; ++n) sum = kernels::combined(stack[--depth], sum);
        stack[depth++] = sum;
      }
      const T total = stack[0].count;
      if (i == 0) *count = total;
      if (i >= end) return;
      mean[i] = stack[0].mean;
      variance[i] = total == 0 ? T(0) : stack[0].squares / total;
    });
  }
};

constexpr std::size_t kStride = 3;  // mean, squares, count

QueueRun combine(KernelPlan& plan) {
  const std::size_t parts = plan.inputs() / kStride;
  require(parts <= kMostParts, plan.node().describe(), ": the moments of ", parts,
          " parts on a GPU: at most ", kMostParts, " are possible");
  return visit_floating(plan.dtype(), [parts]<class T>(T) -> QueueRun {
    return [parts](const KernelPointers& p, KernelQueue& queue) {
      Combine<T> kernel;
      kernel.begin = p.begin();
      kernel.end = p.end();
      kernel.mean = p.output<T>(0);
      kernel.variance = p.output<T>(1);
      kernel.count = p.output<T>(2);
      kernel.order.plan(parts);
      for (std::size_t k = 0; k < parts; ++k)
        kernel.part[k] = {p.input<T>(kStride * k), p.input<T>(kStride * k + 1),
                          p.input<T>(kStride * k + 2)};
      // Even without channels there is a count.
      launch(queue, kernel, grid_for(std::max<std::int64_t>(p.end() - p.begin(), 1)));
    };
  });
}

const GpuKernel kernel_of_op{kCombineMoments, combine};

}  // namespace
}  // namespace belfry::cuda
