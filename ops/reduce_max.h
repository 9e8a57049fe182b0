// ReduceMax, ReduceMin, products: over some axes or all.
#pragma once
#include "belfry/ops/reduce.h"

namespace belfry {

extern const Op kReduceMax;
extern const Op kReduceMin;
extern const Op kSpreadToTies;
extern const Op kMeanOfTies;

// The largest or smallest element along axes, as in reduce_sum(). f32 f64 i32 i64. NaN if one
// element is NaN. An axis of no elements is refused. If several elements are the largest, each gets
// an equal share of the gradient, as in torch.amax.
Output reduce_max(Output x, std::vector<int> axes = {}, At at = {});
Output reduce_max(Output x, std::vector<int> axes, ReducedAxes kept, At at = {});
Output reduce_min(Output x, std::vector<int> axes = {}, At at = {});
Output reduce_min(Output x, std::vector<int> axes, ReducedAxes kept, At at = {});

// The product along axes, whose sizes must be known; of nothing, 1. It multiplies halves of an axis
// with each other until one element is left, so gradients are right for zeros, too.
Output reduce_prod(Output x, std::vector<int> axes = {}, At at = {});
Output reduce_prod(Output x, std::vector<int> axes, ReducedAxes kept, At at = {});

}  // namespace belfry
