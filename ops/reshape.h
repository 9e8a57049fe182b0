// Reshape, ReshapeLike, Flatten: the same elements under another shape, at no cost.
#pragma once
#include "belfry/framework/graph/graph.h"

namespace belfry {

extern const Op kReshape;
extern const Op kReshapeLike;
extern const Op kFlatten;

// One dimension of `shape` may be kUnknownSize: it follows from the number of elements.
Output reshape(Output x, Shape shape, At at = {});
// The shape that `like` has when the graph runs.
Output reshape_like(Output x, Output like, At at = {});
// [n, ...] -> [n, product of the rest].
Output flatten(Output x, At at = {});

}  // namespace belfry
