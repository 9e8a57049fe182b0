// numpy's broadcasting, for shape functions and plain kernels.
#pragma once
#include "belfry/framework/graph/op.h"

namespace belfry {

// The common shape of a and b. If one dimension is unknown and the other is not 1, the result has
// the other. Refuses shapes that do not fit.
Shape broadcast_shapes(const ShapeContext& c, const Shape& a, const Shape& b);

// The element of a tensor of shape `x` that element `i` of the broadcast shape `out` shows.
std::int64_t broadcast_index(std::int64_t i, const Shape& out, const Shape& x);

}  // namespace belfry
