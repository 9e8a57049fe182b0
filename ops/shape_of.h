// Shape, Size, Rank of a tensor, as i64. These ops do not read its values, so the placer puts them
// on its device.
#pragma once
#include "belfry/framework/graph/graph.h"

namespace belfry {

extern const Op kShapeOf;
extern const Op kSizeOf;
extern const Op kRankOf;

// The dimensions, [rank].
Output shape_of(Output x, At at = {});
// The number of elements, a scalar.
Output size_of(Output x, At at = {});
// The number of dimensions, a scalar.
Output rank_of(Output x, At at = {});

}  // namespace belfry
