// CombineMoments: the moments of a whole from those of its parts.
#pragma once
#include "belfry/framework/graph.h"

namespace belfry {

struct Moments {
  Output mean, variance;
};

// K means and K population variances of one shape, of parts of equal size -> mean and variance of
// all parts together, combined exactly (Chan et al. 1979) by the balanced tree over the parts,
// split at ceil(K / 2). f32 and f64.
extern const Op kCombineMoments;
Moments combine_moments(std::span<const Output> means, std::span<const Output> variances,
                        At at = {});

}  // namespace belfry
