// Segments: sums, means and maxima of rows that have the same id.
#pragma once
#include "belfry/framework/graph/graph.h"

namespace belfry {

extern const Op kSegmentSum;
extern const Op kSegmentMax;
extern const Op kSegmentShares;

struct SegmentOptions {
  std::int64_t segments = 0;
};

// values [ids..., ...], ids of any shape (i32 or i64, in any order) -> [segments, ...]: the rows of
// each segment, added in order of the ids. Segments without rows are 0. f32 f64 i32 i64. A run
// fails with InvalidArgument naming the op and the id if one is not in [0, segments).
Output segment_sum(Output values, Output ids, std::int64_t segments, At at = {});
// The same divided by the number of rows; floating point only. f16 and bf16 are summed in f32.
Output segment_mean(Output values, Output ids, std::int64_t segments, At at = {});
// The largest element of each segment; NaN if one is NaN. Segments without rows are -inf, or the
// smallest integer. If several elements are the largest, each gets an equal share of the gradient.
Output segment_max(Output values, Output ids, std::int64_t segments, At at = {});

}  // namespace belfry
