// StopGradient: the same tensor, a constant to differentiation.
#pragma once
#include "belfry/framework/graph/graph.h"

namespace belfry {

extern const Op kStopGradient;

Output stop_gradient(Output x, At at = {});

}  // namespace belfry
