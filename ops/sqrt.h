// Sqrt: the square root; NaN below 0.
#pragma once
#include "belfry/framework/graph/graph.h"

namespace belfry {

extern const Op kSqrt;

Output sqrt(Output x, At at = {});

}  // namespace belfry
