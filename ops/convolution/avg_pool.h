// AvgPool: the mean of the pixels under each window. Padding does not count, unless options say so.
#pragma once
#include "belfry/framework/graph/graph.h"
#include "belfry/ops/convolution/window.h"

namespace belfry {

// x [n, h, w, c] -> [n, h', w', c], sizes as in padding.h. f32 and f64.
extern const Op kAvgPool;
Output avg_pool(Output x, PoolOptions options = {}, At at = {});

// dy -> dx.
extern const Op kAvgPoolGrad;

}  // namespace belfry
