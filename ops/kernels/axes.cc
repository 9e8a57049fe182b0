#include "belfry/ops/kernels/axes.h"

namespace belfry {

std::size_t checked_axis(const ShapeContext& c, int axis, std::size_t rank) {
  c.require(axis < static_cast<int>(rank) && axis >= -static_cast<int>(rank), "there is no axis ",
            axis, " in ", rank, " dimensions");
  return from_end(axis, rank);
}

std::vector<bool> checked_axes(const ShapeContext& c, const std::vector<int>& axes,
                               std::size_t rank) {
  std::vector<bool> mask(rank);
  for (const int axis : axes) {
    const std::size_t at = checked_axis(c, axis, rank);
    c.require(!mask[at], "axis ", axis, " is given twice");
    mask[at] = true;
  }
  return axes.empty() ? std::vector<bool>(rank, true) : mask;
}

std::vector<bool> axis_mask(const std::vector<int>& axes, std::size_t rank) {
  std::vector<bool> mask(rank, axes.empty());
  for (const int axis : axes) mask[from_end(axis, rank)] = true;
  return mask;
}

}  // namespace belfry
