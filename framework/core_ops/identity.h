// Identity: the same tensor, for free.
#pragma once
#include "belfry/framework/graph/graph.h"

namespace belfry {

extern const Op kIdentity;

Output identity(Output x, At at = {});

}  // namespace belfry
