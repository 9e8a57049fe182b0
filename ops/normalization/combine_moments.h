// CombineMoments: the moments of a whole from those of its parts.
#pragma once
#include "belfry/framework/graph/graph.h"

namespace belfry {

struct Moments {
  Output mean, variance;
};

struct CombineMomentsOptions {
  bool counted = false;
};

// K means and K population variances of one shape -> mean and variance of all parts together,
// combined exactly (Chan et al. 1979) by the balanced tree over the parts, split at ceil(K / 2).
// f32 and f64. Counts, scalars of the same dtype, are the sizes of the parts; one of size 0 does
// not count, whatever its moments, and of nothing at all the moments are 0. Without counts parts
// are of equal size. Counts are constants to gradients.
//
// Inputs part by part: mean, variance and, if counted, count; so parts can be added to an open node
// (Graph::add_open).
extern const Op kCombineMoments;
Moments combine_moments(std::span<const Output> means, std::span<const Output> variances,
                        std::span<const Output> counts = {}, At at = {});
// The same, always counted, of the shards of a device.
extern const Op kCombineShards;
// dmean, dvariance, the combined mean, and the inputs of the above -> the gradient of each part's
// mean and variance, part by part.
extern const Op kCombineMomentsGrad;

}  // namespace belfry
