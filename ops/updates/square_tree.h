// The order in which squares are added, one for hosts and GPUs and for any division of work. Lanes
// are 256 elements apart, over parts of a tensor. The sums of lanes are added by halves, and the
// sums of parts in the same way. All in f64.
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

// What each gradient is multiplied by so that the norm of all, each `times` what it is, is at most
// `most`. Of a norm that is no number, NaN; 0 if `times` is, and else never.
BELFRY_HD float clip_factor(double norm, double most, float times) {
  if (times == 0) return 0;
  const double scaled = norm * static_cast<double>(times);
  if (!(scaled <= 0x1.fffffffffffffp1023)) return math::Format<float>::kNan;
  const double share = most / scaled;
  const auto factor = static_cast<float>(share < 1 ? share * static_cast<double>(times)
                                                   : static_cast<double>(times));
  return factor == 0 ? 0x1p-126f : factor;
}

// By what the update of a variable is scaled so that its norm is the variable's; 1 where one of
// them is 0. 0 if `times` is, and else never.
BELFRY_HD float trust_ratio(double variable, double update, float times) {
  if (times == 0) return 0;
  if (variable == 0 || update == 0) return 1;
  const auto ratio = static_cast<float>(variable / update);
  return ratio == 0 ? 0x1p-126f : ratio;
}

}  // namespace belfry::kernels
