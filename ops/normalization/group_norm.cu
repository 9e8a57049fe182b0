// GroupNorm and its gradient: a block takes a group of a sample. Rows are summed per channel.
#include "belfry/framework/cuda/kernels/fold.h"
#include "belfry/framework/cuda/kernels/gpu_kernel.h"
#include "belfry/framework/cuda/kernels/launch.h"
#include "belfry/framework/cuda/kernels/row_passes.cuh"
#include "belfry/framework/kernels/math.h"
#include "belfry/ops/normalization/group_norm.h"
#include "belfry/ops/normalization/group_norm_impl.h"

namespace belfry::cuda {
namespace {

constexpr int kGroupThreads = 256;

// The mean of a group, and 1 / sqrt(variance + epsilon).
template <class T>
struct GroupScale {
  T mean, scale;
};

template <class T>
struct GroupShared {
  T partial[2][kGroupThreads];
  GroupScale<T> by;
};

// Sums two terms over [0, count): term(i, a, b) adds to a and b. Results are in partial[0][0] and
// partial[1][0].
template <class T, class Term>
BELFRY_HD void sum_pairs(const Block& block, GroupShared<T>& shared, std::int64_t count,
                         const Term& term) {
  block.each([&](int thread) {
    T a = 0, b = 0;
    for (std::int64_t i = thread; i < count; i += kGroupThreads) term(i, a, b);
    shared.partial[0][thread] = a;
    shared.partial[1][thread] = b;
  });
  by_halves(block, kGroupThreads, [&](int to, int from) {
    for (auto& partial : shared.partial) partial[to] += partial[from];
  });
}

// The offset of element i of group `index`, counted over all samples.
BELFRY_HD std::int64_t place_in_group(const GroupedSamples& s, std::int64_t index, std::int64_t i) {
  const std::int64_t sample = index / s.groups, group = index % s.groups;
  return (sample * s.pixels + i / s.width()) * s.channels + group * s.width() + i % s.width();
}

template <class T>
BELFRY_HD void find_group_scale(const Block& block, GroupShared<T>& shared, const GroupedSamples& s,
                                const T* x) {
  const T count = static_cast<T>(s.values()), first = x[place_in_group(s, block.index, 0)];
  sum_pairs(block, shared, s.values(), [&](std::int64_t i, T& sum, T&) {
    sum += x[place_in_group(s, block.index, i)] - first;
  });
  block.each([&](int thread) {
    if (thread == 0) shared.by.mean = first + shared.partial[0][0] / count;
  });
  sum_pairs(block, shared, s.values(), [&](std::int64_t i, T& squares, T&) {
    const T distance = x[place_in_group(s, block.index, i)] - shared.by.mean;
    squares += distance * distance;
  });
  block.each([&](int thread) {
    const T variance = shared.partial[0][0] / count;
    if (thread == 0) shared.by.scale = T(1) / math::sqrt(variance + static_cast<T>(s.epsilon));
  });
}

template <class T>
struct NormGroup {
  using Shared = GroupShared<T>;
  GroupedSamples s;
  const T *x, *gamma, *beta;
  T* y;

  BELFRY_HD void operator()(const Block& block, Shared& shared) const {
    find_group_scale(block, shared, s, x);
    block.each([&](int thread) {
      for (std::int64_t i = thread; i < s.values(); i += kGroupThreads) {
        const std::int64_t at = place_in_group(s, block.index, i), c = at % s.channels;
        y[at] = (x[at] - shared.by.mean) * shared.by.scale * gamma[c] + beta[c];
      }
    });
  }
};

// Computes dx, and the scale of the group.
template <class T>
struct NormGroupGrad {
  using Shared = GroupShared<T>;
  GroupedSamples s;
  const T *dy, *x, *gamma;
  GroupScale<T>* scales;
  T* dx;

  BELFRY_HD void operator()(const Block& block, Shared& shared) const {
    find_group_scale(block, shared, s, x);
    const auto normed = [&](std::int64_t at) { return (x[at] - shared.by.mean) * shared.by.scale; };
    sum_pairs(block, shared, s.values(), [&](std::int64_t i, T& sum, T& product) {
      const std::int64_t at = place_in_group(s, block.index, i);
      const T weighted = dy[at] * gamma[at % s.channels];
      sum += weighted;
      product += weighted * normed(at);
    });
    const T count = static_cast<T>(s.values());
    block.each([&](int thread) {
      if (thread == 0) scales[block.index] = shared.by;
      for (std::int64_t i = thread; i < s.values(); i += kGroupThreads) {
        const std::int64_t at = place_in_group(s, block.index, i);
        const T own = dy[at] * gamma[at % s.channels] - shared.partial[0][0] / count -
                      normed(at) * (shared.partial[1][0] / count);
        dx[at] = own * shared.by.scale;
      }
    });
  }
};

// dgamma and dbeta of a channel.
template <class T>
struct ChannelGrads {
  T gamma, beta;
};

// Sums them over the pixels of all samples, 8 at a time.
template <class T>
struct ChannelLeaf {
  using Value = ChannelGrads<T>;
  static constexpr int kChannels = 1, kEach = 2;
  GroupedSamples s;
  std::int64_t channels;
  const T *dy, *x;
  const GroupScale<T>* scales;
  T *dgamma, *dbeta;
  Value* to_parts;  // null in the last launch

  BELFRY_HD static Value neutral() {
    return {kernels::Add::kNeutral<T>, kernels::Add::kNeutral<T>};
  }
  BELFRY_HD static Value combine(const Value& a, const Value& b) {
    return {a.gamma + b.gamma, a.beta + b.beta};
  }
  BELFRY_HD bool whole(std::int64_t end) const { return end * kLeaf <= s.samples * s.pixels; }

  template <bool all>
  BELFRY_HD void term(std::int64_t leaf, std::int64_t channel, Value (&out)[1]) const {
    Value sum = neutral();
    BELFRY_UNROLL
    for (int k = 0; k < kLeaf; ++k) {
      const std::int64_t row = leaf * kLeaf + k;
      if (!all && row >= s.samples * s.pixels) continue;
      const GroupScale<T> by = scales[row / s.pixels * s.groups + channel / s.width()];
      const std::int64_t at = row * channels + channel;
      sum = combine(sum, {dy[at] * ((x[at] - by.mean) * by.scale), dy[at]});
    }
    out[0] = sum;
  }

  BELFRY_HD void finish(std::int64_t group, std::int64_t channel, const Value& total) const {
    if (to_parts) {
      to_parts[group * channels + channel] = total;
      return;
    }
    dgamma[channel] = total.gamma;
    dbeta[channel] = total.beta;
  }
};

Grid grid_of_groups(const GroupedSamples& s) {
  return {s.pixels == 0 ? 0 : s.samples * s.groups, kGroupThreads};
}

QueueRun prepare_group_norm(KernelPlan& plan) {
  const GroupedSamples s(plan.input(0).shape, plan.options<GroupNormOptions>());
  return visit_floating(plan.dtype(), [&]<class T>(T) -> QueueRun {
    return [s](const KernelPointers& p, KernelQueue& queue) {
      launch(queue, NormGroup<T>{s, p.input<T>(0), p.input<T>(1), p.input<T>(2), p.output<T>()},
             grid_of_groups(s));
    };
  });
}

QueueRun prepare_group_norm_grad(KernelPlan& plan) {
  const GroupedSamples s(plan.input(1).shape, plan.options<GroupNormOptions>());
  const RowsOf rows(plan.input(1).shape);
  return visit_floating(plan.dtype(), [&]<class T>(T) -> QueueRun {
    const std::int64_t parts = parts_bytes<ChannelGrads<T>>(rows);
    plan.workspace(parts + s.samples * s.groups * static_cast<std::int64_t>(sizeof(GroupScale<T>)));
    return [=](const KernelPointers& p, KernelQueue& queue) {
      auto* const scales = reinterpret_cast<GroupScale<T>*>(p.workspace() + parts);
      const T *const dy = p.input<T>(0), *const x = p.input<T>(1);
      launch(queue, NormGroupGrad<T>{s, dy, x, p.input<T>(2), scales, p.output<T>()},
             grid_of_groups(s));
      over_rows(queue, rows,
                ChannelLeaf<T>{.s = s,
                               .channels = s.channels,
                               .dy = dy,
                               .x = x,
                               .scales = scales,
                               .dgamma = p.output<T>(1),
                               .dbeta = p.output<T>(2),
                               .to_parts = nullptr},
                p.workspace());
    };
  });
}

const GpuKernel kernels_of_group_norm[] = {{kGroupNorm, prepare_group_norm},
                                           {kGroupNormGrad, prepare_group_norm_grad}};

}  // namespace
}  // namespace belfry::cuda
