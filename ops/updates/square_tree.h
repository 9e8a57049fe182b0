// The order in which squares are added: the same for hosts and GPUs, however the work is divided.
// Lanes are 256 elements apart, over parts of a tensor. The sums of lanes are added by halves, and
// so are the sums of parts. All sums are in f64.
#pragma once
#include <cstdint>

#include "belfry/framework/kernels/math.h"

namespace belfry::kernels {

inline constexpr int kSquareLanes = 256;
inline constexpr int kSquaresEach = 16;  // of a lane in a part
inline constexpr std::int64_t kSquarePart = std::int64_t{kSquareLanes} * kSquaresEach;

constexpr std::int64_t square_parts(std::int64_t elements) {
  return (elements + kSquarePart - 1) / kSquarePart;
}

// The factor, including `times`, that limits the norm of all gradients to `most`. NaN if the norm
// is infinite or NaN. 0 if and only if `times` is.
BELFRY_HD float clip_factor(double norm, double most, float times) {
  if (times == 0) return 0;
  const double scaled = norm * static_cast<double>(times);
  if (!(scaled <= 0x1.fffffffffffffp1023)) return math::Format<float>::kNan;
  const double share = most / scaled;
  const auto factor = static_cast<float>(share < 1 ? share * static_cast<double>(times)
                                                   : static_cast<double>(times));
  return factor == 0 ? 0x1p-126f : factor;
}

// The factor that makes the norm of an update equal to the variable's; 1 if either norm is 0. The
// result is 0 if and only if `times` is.
BELFRY_HD float trust_ratio(double variable, double update, float times) {
  if (times == 0) return 0;
  if (variable == 0 || update == 0) return 1;
  const auto ratio = static_cast<float>(variable / update);
  return ratio == 0 ? 0x1p-126f : ratio;
}

}  // namespace belfry::kernels
