// CombineMoments: the moments of a whole from the moments of its parts.
#pragma once
#include "belfry/framework/graph/graph.h"

namespace belfry {

struct Moments {
  Output mean, variance;
};

// Means, sums of squared differences from them, all of one shape, and counts, scalars, of K parts
// -> mean and population variance of all parts together, and their count: combined exactly (Chan et
// al. 1979) by the balanced tree over the parts, split at ceil(K / 2). f32 and f64. A part of count
// 0 is ignored, whatever its moments. If all counts are 0, so are the moments.
//
// Inputs are ordered by part: mean, sum of squares, count.
extern const Op kCombineMoments;
// The same for the rows of gather_moments.h, in one tensor. Plans make it.
extern const Op kCombineGathered;
// Combines such rows into one, in the same order. So rows may be merged level by level.
extern const Op kMergeMoments;
// Takes population variances instead of sums of squares. Without counts the parts are of equal
// size.
Moments combine_moments(std::span<const Output> means, std::span<const Output> variances,
                        std::span<const Output> counts = {}, At at = {});

}  // namespace belfry
