// SumTo: undoes broadcasting.
#pragma once
#include "belfry/framework/graph/graph.h"

namespace belfry {

// x summed over the dimensions along which `like` was repeated to give its shape, so the result has
// the shape of `like`. `other` is the shape that `like` was broadcast with. If the shapes show that
// nothing was repeated, it is free; if they show what was, it is a reduce_sum. Otherwise the axes
// follow from the shapes when the graph runs.
Output sum_to(Output x, Output like, const Shape& other, At at = {});

extern const Op kSumTo;
// The axes of x along which SumTo sums to get the shape of `like`.
std::vector<bool> repeated_axes(const Shape& x, const Shape& like);

}  // namespace belfry
