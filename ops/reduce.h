// ReduceSum, ReduceMean: over some axes or all. Sums are trees of logarithmic depth
// (kernels/reduce.h).
#pragma once
#include "belfry/framework/graph/graph.h"

namespace belfry {

// These ops reduce dimension 0, among others, so parts of the batch give partial sums.
extern const Op kReduceSum;
extern const Op kReduceMean;
// These ops keep dimension 0.
extern const Op kReduceSumRows;
extern const Op kReduceMeanRows;

// Whether the reduced axes are dropped from the shape, or stay as 1.
enum class ReducedAxes { kDropped, kKept };

struct ReductionOptions {
  std::vector<int> axes;
  ReducedAxes kept = ReducedAxes::kDropped;
};

// Axes may be negative (from the last); an empty list means all. f32 f64 i32 i64.
Output reduce_sum(Output x, std::vector<int> axes = {}, At at = {});
Output reduce_sum(Output x, std::vector<int> axes, ReducedAxes kept, At at = {});
// Floating point only. The mean of nothing is NaN.
Output reduce_mean(Output x, std::vector<int> axes = {}, At at = {});
Output reduce_mean(Output x, std::vector<int> axes, ReducedAxes kept, At at = {});

}  // namespace belfry
