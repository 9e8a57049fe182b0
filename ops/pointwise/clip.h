// Clip: elements between two limits.
#pragma once
#include "belfry/framework/graph/graph.h"

namespace belfry {

struct ClipOptions {
  double low, high;
};

extern const Op kClip;

// min(max(x, low), high) for floating-point numbers; a limit may be infinite. NaN stays. Elements
// within the limits, or at one, pass their gradient on, as in TensorFlow.
Output clip(Output x, double low, double high, At at = {});

}  // namespace belfry
