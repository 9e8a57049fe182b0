// Axes as users give them: negative values count from the last.
#pragma once
#include <vector>

#include "belfry/framework/graph/op.h"

namespace belfry {

// The axis of a tensor of `rank` dimensions, which must have it.
inline std::size_t from_end(int axis, std::size_t rank) {
  return static_cast<std::size_t>(axis < 0 ? axis + static_cast<int>(rank) : axis);
}

// The same for a shape function: refuses axes out of range.
std::size_t checked_axis(const ShapeContext& c, int axis, std::size_t rank);

// True at the listed axes, or at all if none are listed. Refuses repeated axes and axes out of
// range.
std::vector<bool> checked_axes(const ShapeContext& c, const std::vector<int>& axes,
                               std::size_t rank);

// The same without checks.
std::vector<bool> axis_mask(const std::vector<int>& axes, std::size_t rank);

}  // namespace belfry
