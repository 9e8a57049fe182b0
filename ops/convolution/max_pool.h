// MaxPool: the largest value under each window.
#pragma once
#include "belfry/framework/graph/graph.h"
#include "belfry/ops/convolution/window.h"

namespace belfry {

// x [n, h, w, c] -> y [n, h', w', c], sizes as in window.h, and, as a second output that the
// gradient reads, where in its window each maximum was, u8 of y's shape, row by row; the first of
// equal ones. NaN is larger than anything, and of several the last is taken. Padding never wins.
// f32 and f64; windows up to 16.
extern const Op kMaxPool;
Output max_pool(Output x, PoolOptions options = {}, At at = {});

// dy, the second output of MaxPool -> dx.
extern const Op kMaxPoolGrad;

}  // namespace belfry
