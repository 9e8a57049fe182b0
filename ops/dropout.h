// Dropout: sets random elements to zero and scales the others up.
#pragma once
#include "belfry/framework/graph.h"

namespace belfry {

// x -> y = x * (kept ? 1 / (1 - rate) : 0), and the mask as a second output, u8 of x's shape. An
// element is dropped with probability `rate`, in [0, 1), by a random number that depends on (graph
// seed, logical name, replica, step, element) alone. f32 and f64.
extern const Op kDropout;
Output dropout(Output x, double rate, At at = {});

// dy, mask -> dx.
extern const Op kDropoutGrad;

}  // namespace belfry
