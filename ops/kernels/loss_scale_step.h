// The rule of ops/loss_scale.h, for hosts and GPUs.
#pragma once
#include <cstdint>

#include "belfry/framework/kernels/simd.h"

namespace belfry::kernels {

struct LossScale {
  float scale;
  std::int64_t good_steps;
};

BELFRY_HD LossScale next(LossScale now, bool applied, std::int64_t growth_steps) {
  constexpr float kLeast = 0x1p-126f, kMost = 0x1p126f;
  if (!applied) {
    const float half = now.scale / 2;
    return {half < kLeast ? kLeast : half, 0};
  }
  if (now.good_steps + 1 < growth_steps) return {now.scale, now.good_steps + 1};
  const float twice = now.scale * 2;
  return {twice > kMost ? kMost : twice, 0};
}

}  // namespace belfry::kernels
