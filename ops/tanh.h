// Tanh and TanhGrad: the hyperbolic tangent.
#pragma once
#include "belfry/framework/graph/graph.h"

namespace belfry {

extern const Op kTanh;
extern const Op kTanhGrad;

Output tanh(Output x, At at = {});

// dy * (1 - y^2), y = tanh(x).
Output tanh_grad(Output dy, Output y, At at = {});

}  // namespace belfry
