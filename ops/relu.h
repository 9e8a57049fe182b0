// Relu and ReluGrad: max(x, 0).
#pragma once
#include "belfry/framework/graph/graph.h"

namespace belfry {

extern const Op kRelu;
extern const Op kReluGrad;

Output relu(Output x, At at = {});

// dy where y = relu(x) is positive, else 0; NaN in dy or y stays.
Output relu_grad(Output dy, Output y, At at = {});

}  // namespace belfry
