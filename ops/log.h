// Log: the natural logarithm; NaN below 0, -inf at 0.
#pragma once
#include "belfry/framework/graph/graph.h"

namespace belfry {

extern const Op kLog;

Output log(Output x, At at = {});

}  // namespace belfry
