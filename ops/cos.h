// Cos: the cosine of an angle in radians; accurate for |x| <= 1e6.
#pragma once
#include "belfry/framework/graph/graph.h"

namespace belfry {

extern const Op kCos;

Output cos(Output x, At at = {});

}  // namespace belfry
