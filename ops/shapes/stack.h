// Stack and unstack: tensors of one shape along a new axis.
#pragma once
#include <initializer_list>
#include <span>
#include <vector>

#include "belfry/framework/graph/graph.h"

namespace belfry {

// The tensors as the elements of a new axis: `axis` of the result (negative: from its last).
Output stack(std::span<const Output> xs, int axis = 0, At at = {});
Output stack(std::initializer_list<Output> xs, int axis = 0, At at = {});

// The elements of x along an axis, whose size must be known, each without this axis.
std::vector<Output> unstack(Output x, int axis = 0, At at = {});

}  // namespace belfry
