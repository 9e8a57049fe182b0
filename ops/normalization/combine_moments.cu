#include "belfry/framework/cuda/kernels/gpu_kernel.h"
#include "belfry/framework/cuda/kernels/launch.h"
#include "belfry/framework/cuda/kernels/tree_order.h"
#include "belfry/ops/normalization/combine_moments.h"

namespace belfry::cuda {
namespace {

constexpr int kMostParts = 100;  // with all else below 4 KiB
using Order = TreeOrder<1, kMostParts>;

template <class T>
struct Part {
  const T *mean, *variance;
  const T* count;  // null for 1
  BELFRY_HD T number() const { return count ? *count : T(1); }
};

// Element i of the combined moments, for begin <= i < end: the host's formulas in its order.
template <class T>
struct Combine {
  using Shared = Nothing;
  std::int64_t begin, end;
  T *mean, *variance;
  Order order;
  Part<T> part[kMostParts];

  // The mean of so many, and their squared distances from it.
  struct Sum {
    T mean, squares, count;
  };

  BELFRY_HD Sum of_part(int k, std::int64_t i) const {
    const T count = part[k].number();
    if (count == 0) return {0, 0, 0};
    return {part[k].mean[i], part[k].variance[i] * count, count};
  }

  BELFRY_HD static Sum together(const Sum& left, const Sum& right) {
    if (left.count == 0) return right;
    if (right.count == 0) return left;
    const T distance = right.mean - left.mean, count = left.count + right.count;
    const T share = right.count / count;
    return {left.mean + distance * share,
            left.squares + right.squares + distance * distance * (left.count * share), count};
  }

  BELFRY_HD void operator()(const Block& block, Shared&) const {
    block.each([&](int thread) {
      const std::int64_t i = begin + block.index * block.threads + thread;
      if (i >= end) return;
      Sum stack[Order::kDepth];
      int depth = 0;
      for (int k = 0; k < order.count; ++k) {
        Sum sum = of_part(k, i);
        for (int n = 0; n < order.additions[k]; ++n) sum = together(stack[--depth], sum);
        stack[depth++] = sum;
      }
      mean[i] = stack[0].mean;
      variance[i] = stack[0].count == 0 ? T(0) : stack[0].squares / stack[0].count;
    });
  }
};

// Their gradients with respect to the moments of each part.
template <class T>
struct CombineGrad {
  using Shared = Nothing;
  std::int64_t begin, end;
  const T *dmean, *dvariance, *mean;
  int parts;
  struct One {
    const T* mean;
    const T* count;  // null for 1
    T *dmean, *dvariance;
    BELFRY_HD T number() const { return count ? *count : T(1); }
  };
  One part[kMostParts];

  BELFRY_HD void operator()(const Block& block, Shared&) const {
    block.each([&](int thread) {
      const std::int64_t i = begin + block.index * block.threads + thread;
      if (i >= end) return;
      T total = 0;
      for (int k = 0; k < parts; ++k) total += part[k].number();
      for (int k = 0; k < parts; ++k) {
        const One& one = part[k];
        const T count = one.number(), share = count / total;
        const T distance = count == 0 ? T(0) : one.mean[i] - mean[i];
        one.dmean[i] = count == 0 ? T(0) : share * (dmean[i] + 2 * distance * dvariance[i]);
        one.dvariance[i] = count == 0 ? T(0) : share * dvariance[i];
      }
    });
  }
};

// Parts as inputs [first, ..) of a launch: mean, variance and, if counted, count of each.
struct Inputs {
  Inputs(const KernelPlan& plan, std::size_t first_input)
      : first(first_input), stride(plan.options<CombineMomentsOptions>().counted ? 3 : 2) {
    parts = (plan.inputs() - first) / stride;
    require(parts <= kMostParts, "the moments of ", parts, " parts on a GPU: at most ", kMostParts,
            " are possible");
  }
  template <class T>
  const T* of(const Pointers& p, std::size_t part, std::size_t which) const {
    return which < stride ? p.input<T>(first + stride * part + which) : nullptr;
  }
  std::size_t first, stride, parts;
};

QueueRun combine(KernelPlan& plan) {
  return visit_floating(plan.dtype(), [inputs = Inputs(plan, 0)]<class T>(T) -> QueueRun {
    return [inputs](const Pointers& p, Queue& queue) {
      Combine<T> kernel;
      kernel.begin = p.begin();
      kernel.end = p.end();
      kernel.mean = p.output<T>(0);
      kernel.variance = p.output<T>(1);
      kernel.order.plan(inputs.parts);
      for (std::size_t k = 0; k < inputs.parts; ++k)
        kernel.part[k] = {inputs.of<T>(p, k, 0), inputs.of<T>(p, k, 1), inputs.of<T>(p, k, 2)};
      launch(queue, kernel, grid_for(p.end() - p.begin()));
    };
  });
}

QueueRun combine_grad(KernelPlan& plan) {
  return visit_floating(plan.dtype(), [inputs = Inputs(plan, 3)]<class T>(T) -> QueueRun {
    return [inputs](const Pointers& p, Queue& queue) {
      CombineGrad<T> kernel;
      kernel.begin = p.begin();
      kernel.end = p.end();
      kernel.dmean = p.input<T>(0);
      kernel.dvariance = p.input<T>(1);
      kernel.mean = p.input<T>(2);
      kernel.parts = static_cast<int>(inputs.parts);
      for (std::size_t k = 0; k < inputs.parts; ++k)
        kernel.part[k] = {inputs.of<T>(p, k, 0), inputs.of<T>(p, k, 2), p.output<T>(2 * k),
                          p.output<T>(2 * k + 1)};
      launch(queue, kernel, grid_for(p.end() - p.begin()));
    };
  });
}

const GpuKernel kernels_of_ops[] = {
    {kCombineMoments, combine},
    {kCombineMomentsGrad, combine_grad},
};

}  // namespace
}  // namespace belfry::cuda
