// Identity: the same tensor, at no cost.
#pragma once
#include "belfry/framework/graph/graph.h"

namespace belfry {

extern const Op kIdentity;

Output identity(Output x, At at = {});

}  // namespace belfry
