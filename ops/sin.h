// Sin: the sine of an angle in radians; accurate for |x| <= 1e6.
#pragma once
#include "belfry/framework/graph/graph.h"

namespace belfry {

extern const Op kSin;

Output sin(Output x, At at = {});

}  // namespace belfry
