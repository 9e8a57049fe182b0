// The ops of loss scaling, in one source like those of ops/pointwise.cu.
#include <span>

#include "belfry/framework/cuda/kernels/fold.h"
#include "belfry/framework/cuda/kernels/gpu_kernel.h"
#include "belfry/framework/cuda/kernels/launch.h"
#include "belfry/framework/cuda/kernels/variants.h"
#include "belfry/ops/all_finite.h"
#include "belfry/ops/kernels/loss_scale_step.h"
#include "belfry/ops/loss_scale.h"

namespace belfry::cuda {
namespace {

constexpr int kThreads = 256;

// The findings of a block's threads; unite() leaves their union in at[0].
struct Found {
  int at[kThreads];

  BELFRY_HD static void unite(const Block& block, Found& found) {
    by_halves(block, kThreads, [&](int to, int from) { found.at[to] |= found.at[from]; });
  }
};

// found[block]: whether an element of a part is NaN or beyond the limit. A launch checks many
// tensors.
template <class T>
struct Exceed {
  static constexpr int kMost = 128;  // a power of two; keeps parameters below 4 KiB
  static constexpr int kEach = 16;   // elements of a thread
  using Shared = Found;
  struct Tensor {
    const T* x;
    std::int64_t count, first_block;
  };
  int tensors = 0;
  Tensor tensor[kMost];
  T limit;
  std::uint8_t* found;

  BELFRY_HD void operator()(const Block& block, Shared& shared) const {
    int at = 0;  // the last tensor that begins at or before the block
    for (int step = kMost / 2; step > 0; step /= 2)
      if (at + step < tensors && tensor[at + step].first_block <= block.index) at += step;
    const Tensor& t = tensor[at];
    block.each([&](int thread) {
      int any = 0;
      for (int k = 0; k < kEach; ++k) {
        const std::int64_t i = ((block.index - t.first_block) * kEach + k) * kThreads + thread;
        if (i < t.count) any |= !(t.x[i] <= limit && t.x[i] >= -limit);
      }
      shared.at[thread] = any;
    });
    Found::unite(block, shared);
    block.each([&](int thread) {
      if (thread == 0) found[block.index] = shared.at[0] != 0;
    });
  }
};

// Whether nothing was found, by one block.
struct NoneFound {
  using Shared = Found;
  const std::uint8_t* found;
  std::int64_t count;
  bool* none;

  BELFRY_HD void operator()(const Block& block, Shared& shared) const {
    block.each([&](int thread) {
      int any = 0;
      for (std::int64_t i = thread; i < count; i += kThreads) any |= found[i];
      shared.at[thread] = any;
    });
    Found::unite(block, shared);
    block.each([&](int thread) {
      if (thread == 0) *none = shared.at[0] == 0;
    });
  }
};

std::int64_t parts(const Shape& shape) {
  constexpr std::int64_t kPart = std::int64_t{kThreads} * Exceed<float>::kEach;
  return (shape.elements() + kPart - 1) / kPart;
}

const Variant all_at_once("all_finite.all_at_once");

// Checks the inputs of one type. Returns the place after what was found.
template <class T>
std::uint8_t* check(KernelQueue& queue, const KernelPointers& p, std::span<const TensorType> types,
                    double limit, int at_once, std::uint8_t* found) {
  Exceed<T> kernel;
  kernel.limit = static_cast<T>(limit);
  Grid grid{.blocks = 0, .threads = kThreads};
  const auto flush = [&] {
    kernel.found = found;
    launch(queue, kernel, grid);
    found += grid.blocks;
    kernel.tensors = 0;
    grid.blocks = 0;
  };
  for (std::size_t i = 0; i < types.size(); ++i) {
    if (types[i].dtype != dtype_of<T>() || parts(types[i].shape) == 0) continue;
    kernel.tensor[kernel.tensors++] = {p.input<T>(i), types[i].shape.elements(), grid.blocks};
    grid.blocks += parts(types[i].shape);
    if (kernel.tensors == at_once) flush();
  }
  flush();
  return found;
}

QueueRun all_finite(KernelPlan& plan) {
  std::vector<TensorType> types;
  std::int64_t blocks = 0;
  for (std::size_t i = 0; i < plan.inputs(); ++i) {
    types.push_back(plan.input(i));
    blocks += parts(types[i].shape);
  }
  plan.workspace(blocks);
  return [types, blocks, limit = plan.options<AllFiniteOptions>().limit,
          at_once = all_at_once.on() ? Exceed<float>::kMost : 1](const KernelPointers& p,
                                                                 KernelQueue& queue) {
    auto* const found = reinterpret_cast<std::uint8_t*>(p.workspace());
    std::uint8_t* const after_f32 = check<float>(queue, p, types, limit, at_once, found);
    check<double>(queue, p, types, limit, at_once, after_f32);
    launch(queue, NoneFound{found, blocks, p.output<bool>()}, {.threads = kThreads});
  };
}

constexpr std::size_t kMostFinite = 256;  // checks: two per device and type

struct Unscale {
  using Shared = Nothing;
  const float* scale;
  int count;
  const bool* finite[kMostFinite];
  float* factor;
  std::int64_t* applied;

  BELFRY_HD void operator()(const Block& block, Shared&) const {
    block.each([&](int thread) {
      if (thread > 0) return;
      bool all = true;
      for (int i = 0; i < count; ++i) all = all && *finite[i];
      *factor = all ? 1 / *scale : 0;
      *applied = all ? 1 : 0;
    });
  }
};

QueueRun unscale(KernelPlan& plan) {
  if (plan.inputs() > kMostFinite + 1) return {};
  return [](const KernelPointers& p, KernelQueue& queue) {
    Unscale kernel{p.input<float>(0),
                   static_cast<int>(p.inputs()) - 1,
                   {},
                   p.output<float>(0),
                   p.output<std::int64_t>(1)};
    for (std::size_t i = 1; i < p.inputs(); ++i) kernel.finite[i - 1] = p.input<bool>(i);
    launch(queue, kernel, {.threads = 1});
  };
}

struct UpdateScale {
  using Shared = Nothing;
  std::int64_t growth;
  float* scale;
  std::int64_t* good;
  const std::int64_t* applied;

  BELFRY_HD void operator()(const Block& block, Shared&) const {
    block.each([&](int thread) {
      if (thread > 0) return;
      const kernels::LossScale now = kernels::next({*scale, *good}, *applied != 0, growth);
      *scale = now.scale;
      *good = now.good_steps;
    });
  }
};

QueueRun update(KernelPlan& plan) {
  return [growth = plan.options<LossScaleUpdateOptions>().growth_steps](const KernelPointers& p,
                                                                        KernelQueue& queue) {
    launch(queue,
           UpdateScale{growth, p.written<float>(0), p.written<std::int64_t>(1),
                       p.input<std::int64_t>(2)},
           {.threads = 1});
  };
}

const GpuKernel kernels_of_ops[] = {
    {kAllFinite, all_finite},
    {kUnscale, unscale},
    {kLossScaleUpdate, update},
};

}  // namespace
}  // namespace belfry::cuda
