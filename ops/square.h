// Square: x * x.
#pragma once
#include "belfry/framework/graph/graph.h"

namespace belfry {

extern const Op kSquare;

Output square(Output x, At at = {});

}  // namespace belfry
