// ExpandDims, Squeeze: the same elements with more or fewer dimensions of size 1, at no cost.
#pragma once
#include <vector>

#include "belfry/framework/graph/graph.h"

namespace belfry {

extern const Op kExpandDims;
extern const Op kSqueeze;

// A new dimension of size 1, which is `axis` of the result (negative: from its last).
Output expand_dims(Output x, int axis, At at = {});
// Without these dimensions, which have size 1. If none are given, without all that have size 1;
// the shape must then be known.
Output squeeze(Output x, std::vector<int> axes = {}, At at = {});

}  // namespace belfry
