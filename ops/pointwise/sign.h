// Abs and Sign: f32 f64 i32 i64.
#pragma once
#include "belfry/framework/graph/graph.h"

namespace belfry {

extern const Op kAbs;
extern const Op kSign;

// |x|; its gradient is 0 at 0. The smallest integer, which has no opposite, stays.
Output abs(Output x, At at = {});
// -1, 0 or 1. It has no gradient: where it passes one on, that is an empty Output.
Output sign(Output x, At at = {});

}  // namespace belfry
