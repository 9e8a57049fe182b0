// BatchMoments: what is known of one part of a batch, to be combined with that of others.
#pragma once
#include "belfry/framework/graph/graph.h"

namespace belfry {

// x [..., c] of rank 2 or more and, if wanted, weight, a scalar, f32 or f64 -> mean [c] over all
// axes but the last, computed as in batch_norm.h, the sum of squared differences from it [c], and
// the number of rows that they are of, a scalar of x's dtype: a part of combine_moments.h. No rows
// have zeros. With weight 0 the number is 0. Plans make these nodes.
extern const Op kBatchMoments;

}  // namespace belfry
