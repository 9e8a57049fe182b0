// MaxPool: the largest value under each window.
#pragma once
#include "belfry/framework/graph/graph.h"
#include "belfry/ops/convolution/window.h"

namespace belfry {

// x [n, h, w, c] -> y [n, h', w', c], sizes as in padding.h. The second output, which the gradient
// reads, is the place of each maximum in its window, counted row by row: u8 of y's shape. The first
// of equal maxima wins. NaN is larger than anything, and the last NaN wins. Padding never wins. f32
// and f64; windows of up to 256 pixels.
extern const Op kMaxPool;
Output max_pool(Output x, PoolOptions options = {}, At at = {});

// dy, the second output of MaxPool -> dx.
extern const Op kMaxPoolGrad;
// x, the second output of MaxPool for another x of the same shape -> the values of x in those
// places: the gradient of MaxPoolGrad.
extern const Op kMaxPoolGradGrad;

}  // namespace belfry
