// Silu and SiluGrad: x sigmoid(x), also called swish.
#pragma once
#include "belfry/framework/graph/graph.h"

namespace belfry {

// f32 and f64 of any shape. -inf gives NaN, as 0 times -inf does.
extern const Op kSilu;
Output silu(Output x, At at = {});

// dy, x -> dy times the derivative of silu at x.
extern const Op kSiluGrad;

}  // namespace belfry
