// Clip: elements between two limits.
#pragma once
#include "belfry/framework/graph/graph.h"

namespace belfry {

// x and a scalar of its dtype, the limit, which is not negative -> a tensor like x, f32 or f64:
// min(max(x, -limit), limit). NaN stays. It has no gradient: it is about gradients.
extern const Op kClip;
Output clip(Output x, Output limit, At at = {});

}  // namespace belfry
