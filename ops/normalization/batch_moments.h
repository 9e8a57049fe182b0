// BatchMoments: the first half of a batch norm whose statistics come from several places.
#pragma once
#include "belfry/framework/graph/graph.h"

namespace belfry {

// x [..., c] of rank 2 or more, f32 or f64 -> mean [c] and population variance [c] over all axes
// but the last, computed as in batch_norm.h, and the number of rows that they are of, a scalar of
// x's dtype. With combine_moments() and batch_norm_inference() this makes a batch norm over several
// tensors; all three are differentiable. The number of rows is a constant to gradients.
extern const Op kBatchMoments;

struct CountedMoments {
  Output mean, variance, count;
};
CountedMoments batch_moments(Output x, At at = {});

}  // namespace belfry
