// Passes over the rows of a sample, per channel (moments.h, normalise.h). What they give per
// channel is combined per group.
#include "belfry/ops/normalization/group_norm_on_host.h"

#include <algorithm>

#include "belfry/framework/kernels/math.h"
#include "belfry/framework/kernels/reduce.h"
#include "belfry/framework/kernels/simd.h"
#include "belfry/ops/kernels/typed_kernels.h"
#include "belfry/ops/normalization/group_norm_impl.h"
#include "belfry/ops/normalization/moments.h"
#include "belfry/ops/normalization/normalise.h"

namespace belfry {
namespace {

// Scratch memory: lines of one value per channel, then that of the passes.
template <class T>
struct ChannelLines {
  std::int64_t channels;
  T* memory;

  T* line(std::int64_t i) const { return memory + i * channels; }
};

// Calls f(first channel, end) of each group.
template <class F>
void for_each_group(const GroupedSamples& s, const F& f) {
  for (std::int64_t first = 0; first < s.channels; first += s.width()) f(first, first + s.width());
}

// The mean and variance of each channel's group. `variance` holds sums of squares at first.
template <class T>
void group_moments(const GroupedSamples& s, const T* x, T* mean, T* variance, T* scratch) {
  kernels::moments(x, s.pixels, s.channels, mean, variance, scratch);
  const T pixels = static_cast<T>(s.pixels), width = static_cast<T>(s.width());
  for_each_group(s, [&](std::int64_t first, std::int64_t end) {
    // From the first channel, so that a mean much larger than the deviation does not swallow it.
    T sum = 0, squares = 0;
    for (std::int64_t c = first; c < end; ++c) sum += mean[c] - mean[first];
    const T middle = mean[first] + sum / width;
    for (std::int64_t c = first; c < end; ++c)
      squares += variance[c] + pixels * (mean[c] - middle) * (mean[c] - middle);
    for (std::int64_t c = first; c < end; ++c) {
      mean[c] = middle;
      variance[c] = squares / (pixels * width);
    }
  });
}

// dx = dy scale - offset - (x - mean) slope.
template <class T>
BELFRY_KERNEL void group_input_gradient(const T* dy, const T* x, std::int64_t rows,
                                        std::int64_t channels, const T* mean, const T* scale,
                                        const T* offset, const T* slope, T* dx) {
  for (std::int64_t r = 0; r < rows; ++r) {
    const std::int64_t at = r * channels;
    BELFRY_INDEPENDENT
    for (std::int64_t c = 0; c < channels; ++c)
      dx[at + c] = dy[at + c] * scale[c] - offset[c] - (x[at + c] - mean[c]) * slope[c];
  }
}

// The gradient of one sample: dx, and its parts of dgamma and dbeta. Lines 0 and 1 are scratch, 2
// to 4 the factors of dx.
template <class T>
void gradient_of_sample(const GroupedSamples& s, const T* dy, const T* x, const T* gamma,
                        const ChannelLines<T>& lines, T* scratch, T* dx, T* dgamma, T* dbeta) {
  T *const mean = lines.line(0), *const variance = lines.line(1);
  T *const scale = lines.line(2), *const offset = lines.line(3), *const slope = lines.line(4);
  group_moments(s, x, mean, variance, scratch);
  kernels::gradient_sums(dy, x, mean, s.pixels, s.channels, dbeta, dgamma, scratch);
  const T values = static_cast<T>(s.values());
  for_each_group(s, [&](std::int64_t first, std::int64_t end) {
    const T by = T(1) / math::sqrt(variance[first] + static_cast<T>(s.epsilon));
    T sum = 0, product = 0;
    for (std::int64_t c = first; c < end; ++c) {
      dgamma[c] *= by;
      sum += gamma[c] * dbeta[c];
      product += gamma[c] * dgamma[c];
    }
    for (std::int64_t c = first; c < end; ++c) {
      scale[c] = gamma[c] * by;
      offset[c] = sum / values * by;
      slope[c] = product / values * by * by;
    }
  });
  group_input_gradient(dy, x, s.pixels, s.channels, mean, scale, offset, slope, dx);
}

}  // namespace

KernelRun group_norm_on_host(KernelPlan& plan) {
  const GroupedSamples s(plan.input(0).shape, plan.options<GroupNormOptions>());
  const auto element = static_cast<std::int64_t>(size_of(plan.dtype()));
  plan.workspace((2 * s.channels + kernels::moment_scratch(s.pixels, s.channels)) * element);
  return typed_kernel(plan, [s]<class T>(T, const KernelPointers& p) {
    if (s.size() == 0) return;
    const ChannelLines<T> lines{s.channels, reinterpret_cast<T*>(p.workspace())};
    T *const mean = lines.line(0), *const variance = lines.line(1);
    for (std::int64_t n = p.begin(); n < p.end(); ++n) {
      const T* const x = p.input<T>(0) + n * s.size();
      group_moments(s, x, mean, variance, lines.line(2));
      kernels::normalise<T>(x, s.pixels, s.channels,
                            {mean, variance, p.input<T>(1), static_cast<T>(s.epsilon)},
                            p.input<T>(2), p.output<T>() + n * s.size());
    }
  });
}

KernelRun group_norm_gradient_on_host(KernelPlan& plan) {
  const GroupedSamples s(plan.input(1).shape, plan.options<GroupNormOptions>());
  const auto element = static_cast<std::int64_t>(size_of(plan.dtype()));
  plan.workspace(
      ((5 + 2 * s.samples) * s.channels + kernels::moment_scratch(s.pixels, s.channels)) * element);
  return typed_kernel(plan, [s]<class T>(T, const KernelPointers& p) {
    const ChannelLines<T> lines{s.channels, reinterpret_cast<T*>(p.workspace())};
    T *const dgamma = lines.line(5), *const dbeta = dgamma + s.samples * s.channels;
    T* const scratch = dbeta + s.samples * s.channels;
    if (s.size() == 0) std::fill_n(dgamma, 2 * s.samples * s.channels, T(0));
    for (std::int64_t n = 0; n < s.samples && s.size() > 0; ++n)
      gradient_of_sample(s, p.input<T>(0) + n * s.size(), p.input<T>(1) + n * s.size(),
                         p.input<T>(2), lines, scratch, p.output<T>() + n * s.size(),
                         dgamma + n * s.channels, dbeta + n * s.channels);
    kernels::column_sums(dgamma, s.samples, s.channels, p.output<T>(1), 0, s.channels);
    kernels::column_sums(dbeta, s.samples, s.channels, p.output<T>(2), 0, s.channels);
  });
}

}  // namespace belfry
