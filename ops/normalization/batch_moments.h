// BatchMoments: the moments of one part of a batch, to be combined with those of the other parts.
#pragma once
#include "belfry/framework/graph/graph.h"

namespace belfry {

// x [..., c] of rank 2 or more and perhaps a scalar weight, f32 or f64 -> mean [c] over all axes
// but the last, computed as in batch_norm.h; the sum of squared differences from it [c]; the number
// of rows, a scalar of x's dtype. combine_moments.h takes them. If x has no rows, all are zero.
// With weight 0 the number is 0. Plans make these nodes.
extern const Op kBatchMoments;

}  // namespace belfry
