// BatchStatistics: the moments of a batch in parts, e.g. one per tower.
#pragma once
#include "belfry/ops/normalization/combine_moments.h"

namespace belfry {

// Parts x_1 .. x_K [..., c] of rank 2 or more, each with a weight, a scalar, all f32 or all f64
// -> mean [c] and population variance [c] over all axes but the last of all parts together, and the
// number of all rows, a scalar of the parts' dtype and a constant to gradients. A part of weight 0
// does not count. With batch_norm_inference() this makes a batch norm over several tensors.
//
// With several processes (Graph::process) it takes the parts of all; each process must have the
// same number of parts.
//
// A plan makes BatchMoments on the device of each part, or of each shard of it, and one
// CombineMoments of them all, after GatherMoments if there are several processes. Inputs are
// ordered by part: x, weight; so parts can be added to an open node (Graph::add_open).
extern const Op kBatchStatistics;
// All parts count.
Moments batch_statistics(std::span<const Output> parts, At at = {});

// For one part: x, dmean, dvariance, mean, count, weight -> dx, which is 0 with weight 0, and else
// (dmean + 2 dvariance (x - mean)) / count.
extern const Op kBatchStatisticsGrad;

}  // namespace belfry
