// Softmax over the last axis.
#pragma once
#include "belfry/framework/graph/graph.h"

namespace belfry {

// x [n, ..., c] of rank 2 or more -> the same shape: e^x / sum(e^x) over the last axis, computed
// after subtracting the row's maximum, so that it does not overflow. f32 and f64.
extern const Op kSoftmax;
Output softmax(Output x, At at = {});

// dy, y -> dx = y (dy - sum(dy y)).
extern const Op kSoftmaxGrad;

}  // namespace belfry
