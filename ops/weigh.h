// Multiplies tensors by weights, such as the number of samples of a gradient. A tensor of weight 0
// is ignored, whatever it holds.
#pragma once
#include "belfry/framework/graph/graph.h"

namespace belfry {

// x and a scalar of its dtype -> a tensor like x, f32 or f64; zeros if the scalar is 0, even for
// NaN. The scalar is a constant to gradients.
extern const Op kWeigh;    // weight * x
extern const Op kUnweigh;  // x / weight
extern const Op kCounted;  // x

Output weigh(Output x, Output weight, At at = {});
Output unweigh(Output x, Output weight, At at = {});
Output if_counted(Output x, Output weight, At at = {});

}  // namespace belfry
