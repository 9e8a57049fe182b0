// The sizes that kernels of GroupNorm and its gradient read from a plan.
#pragma once
#include "belfry/framework/graph/kernel.h"
#include "belfry/framework/kernels/simd.h"
#include "belfry/ops/normalization/group_norm.h"

namespace belfry {

// A sample has `pixels` rows of `channels`.
struct GroupedSamples {
  GroupedSamples(const Shape& x, const GroupNormOptions& options)
      : channels(x.back()),
        groups(options.groups),
        samples(channels == 0 ? 0 : x[0]),
        pixels(x.product(1, x.rank() - 1)),
        epsilon(options.epsilon) {}

  std::int64_t channels, groups, samples, pixels;
  double epsilon;

  BELFRY_HD std::int64_t width() const { return channels / groups; }  // channels of a group
  BELFRY_HD std::int64_t values() const { return pixels * width(); }  // of a group
  std::int64_t size() const { return pixels * channels; }             // of a sample
};

}  // namespace belfry
