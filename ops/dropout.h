// Dropout: sets random elements to zero and scales the others up.
#pragma once
#include <cmath>

#include "belfry/framework/graph/graph.h"

namespace belfry {

// x -> y = x * (kept ? 1 / (1 - rate) : 0), and the mask as a second output, u8 of x's shape. An
// element is dropped with probability `rate`, in [0, 1), by a random number that depends only on
// (graph seed, logical name, replica, step, element). f32 and f64.
extern const Op kDropout;
Output dropout(Output x, double rate, At at = {});

// dy, mask -> dx.
extern const Op kDropoutGrad;

struct DropoutOptions {
  double rate = 0;

  // Elements with 64 random bits below this are dropped; the others are scaled.
  std::uint64_t threshold() const { return static_cast<std::uint64_t>(std::ldexp(rate, 64)); }
  double scale() const { return 1 / (1 - rate); }
};

}  // namespace belfry
