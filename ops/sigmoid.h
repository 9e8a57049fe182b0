// Sigmoid and SigmoidGrad: 1 / (1 + e^-x).
#pragma once
#include "belfry/framework/graph/graph.h"

namespace belfry {

extern const Op kSigmoid;
extern const Op kSigmoidGrad;

Output sigmoid(Output x, At at = {});

// dy * y * (1 - y), y = sigmoid(x).
Output sigmoid_grad(Output dy, Output y, At at = {});

}  // namespace belfry
