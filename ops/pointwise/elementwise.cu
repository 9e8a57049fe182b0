// The ops of this room that compute each element by itself, in one source: nvcc takes seven seconds
// for an op's headers, and a tenth of a second for a kernel.
#include "belfry/ops/kernels/bits.h"
#include "belfry/ops/kernels/extremes.h"
#include "belfry/ops/kernels/stored_numbers.cuh"
#include "belfry/ops/pointwise/activations_impl.h"
#include "belfry/ops/pointwise/clip.h"
#include "belfry/ops/pointwise/functors_impl.h"
#include "belfry/ops/pointwise/maximum.h"
#include "belfry/ops/pointwise/near_zero.h"
#include "belfry/ops/pointwise/power.h"
#include "belfry/ops/pointwise/rounding.h"
#include "belfry/ops/pointwise/sign.h"
#include "belfry/ops/pointwise/truth_impl.h"
#include "belfry/ops/pointwise/where.h"

namespace belfry::cuda {
namespace {

// Of floating-point numbers.
template <class F>
QueueRun two_reals(KernelPlan& plan) {
  return visit_stored(plan.dtype(), [strides = operands(plan)]<class T>(T) -> QueueRun {
    return [strides](const KernelPointers& p, KernelQueue& queue) {
      map_broadcast<T>(queue, p, F{}, strides);
    };
  });
}

// y = f(x), or y = f(a, b) for equal shapes, where f has options.
template <int N, class F>
QueueRun map_by(const KernelPlan& plan, F f) {
  return visit_stored(plan.dtype(), [f]<class T>(T) -> QueueRun {
    return [f](const KernelPointers& p, KernelQueue& queue) {
      Map<F, T, N> kernel{.f = f,
                          .count = p.end() - p.begin(),
                          .packed = false,
                          .y = p.output<T>() + p.begin(),
                          .x = {}};
      for (int n = 0; n < N; ++n) kernel.x[n] = p.input<T>(static_cast<std::size_t>(n)) + p.begin();
      launch_map(queue, kernel);
    };
  });
}

QueueRun clip(KernelPlan& plan) {
  const auto& [low, high] = plan.options<ClipOptions>();
  return map_by<1>(plan, functors::ClipTo{low, high});
}

QueueRun activate(KernelPlan& plan) {
  return visit_activation(plan.options<ActivationOptions>(),
                          [&](auto f) { return map_by<1>(plan, f); });
}

QueueRun activate_grad(KernelPlan& plan) {
  return visit_derivative(plan.options<ActivationOptions>(),
                          [&](auto f) { return map_by<2>(plan, f); });
}

// y[i] = whether f(a[..], b[..]), for begin <= i < end.
template <class F, class T>
struct Truth {
  using Shared = Nothing;
  Strides strides;
  std::int64_t begin, end;
  bool* y;
  const T *a, *b;

  BELFRY_HD void operator()(const Block& block, Shared&) const {
    block.each([&](int thread) {
      const std::int64_t i = begin + block.index * block.threads + thread;
      if (i >= end) return;
      const auto [left, right] = strides.at(i);
      y[i] = F{}(Stored<T>::widen(a[left]), Stored<T>::widen(b[right]));
    });
  }
};

QueueRun compare(KernelPlan& plan) {
  const DType dtype = plan.input(0).dtype;
  return visit_truth(plan.options<CompareOptions>().function, [&]<class F>(F) {
    const auto run = [strides = operands(plan)]<class T>(T) -> QueueRun {
      return [strides](const KernelPointers& p, KernelQueue& queue) {
        launch(queue,
               Truth<F, T>{strides, p.begin(), p.end(), p.output<bool>(), p.input<T>(0),
                           p.input<T>(1)},
               grid_for(p.end() - p.begin()));
      };
    };
    return kernels::visit_half_or(
        dtype == DType::kBool ? DType::kU8 : dtype,
        [](DType other, const auto& f) { return visit_any(other, f); }, run);
  });
}

// y[i] = a or b by the condition, for begin <= i < end. Each is lined up with y.
template <class Bits>
struct Chosen {
  using Shared = Nothing;
  Strides condition_at, a_at, b_at;
  std::int64_t begin, end;
  const bool* condition;
  const Bits *a, *b;
  Bits* y;

  BELFRY_HD void operator()(const Block& block, Shared&) const {
    block.each([&](int thread) {
      const std::int64_t i = begin + block.index * block.threads + thread;
      if (i < end) y[i] = condition[condition_at.at(i).a] ? a[a_at.at(i).a] : b[b_at.at(i).a];
    });
  }
};

QueueRun where(KernelPlan& plan) {
  const auto lined = [&](std::size_t i) {
    return Strides(kernels::Broadcast(plan.input(i).shape.dims(), plan.output().shape.dims()));
  };
  return visit_bits(
      plan.dtype(),
      [condition = lined(0), a = lined(1), b = lined(2)]<class Bits>(Bits) -> QueueRun {
        return [=](const KernelPointers& p, KernelQueue& queue) {
          launch(queue,
                 Chosen<Bits>{condition, a, b, p.begin(), p.end(), p.input<bool>(0),
                              p.input<Bits>(1), p.input<Bits>(2), p.output<Bits>()},
                 grid_for(p.end() - p.begin()));
        };
      });
}

const GpuKernel kernels_of_ops[] = {
    {kAbs, unary_arithmetic<functors::Abs>, kTakesHalf},
    {kSign, unary_arithmetic<functors::Sign>, kTakesHalf},
    {kFloor, unary<functors::Floor>, kTakesHalf},
    {kCeil, unary<functors::Ceil>, kTakesHalf},
    {kRound, unary<functors::Round>, kTakesHalf},
    {kLog1p, unary<functors::Log1p>, kTakesHalf},
    {kExpm1, unary<functors::Expm1>, kTakesHalf},
    {kErf, unary<functors::Erf>, kTakesHalf},
    {kMaximum, arithmetic<kernels::Larger>, kTakesHalf},
    {kMinimum, arithmetic<kernels::Smaller>, kTakesHalf},
    {kAbove, two_reals<functors::Above>, kTakesHalf},
    {kPow, two_reals<functors::Pow>, kTakesHalf},
    {kClip, clip, kTakesHalf},
    {kActivate, activate, kTakesHalf},
    {kActivateGrad, activate_grad, kTakesHalf},
    {kCompare, compare, kTakesHalf},
    {kWhere, where, kTakesHalf},
};

}  // namespace
}  // namespace belfry::cuda
