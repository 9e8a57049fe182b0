#include "belfry/ops/kernels/broadcasting.h"

#include <algorithm>

namespace belfry {

Shape broadcast_shapes(const ShapeContext& c, const Shape& a, const Shape& b) {
  const std::size_t rank = std::max(a.rank(), b.rank());
  std::vector<std::int64_t> dims(rank);
  for (std::size_t axis = 0; axis < rank; ++axis) {
    const std::size_t missing_a = rank - a.rank(), missing_b = rank - b.rank();
    const std::int64_t left = axis < missing_a ? 1 : a[axis - missing_a];
    const std::int64_t right = axis < missing_b ? 1 : b[axis - missing_b];
    if (left == 1 || right == 1) {
      dims[axis] = left == 1 ? right : left;
    } else {
      c.require(left == right || left == kUnknownSize || right == kUnknownSize, "shapes ", a,
                " and ", b, " do not fit: their dimensions ", left, " and ", right,
                " must be equal, or one of them 1");
      dims[axis] = left == kUnknownSize ? right : left;
    }
  }
  return Shape(dims);
}

std::int64_t broadcast_index(std::int64_t i, const Shape& out, const Shape& x) {
  std::int64_t index = 0, stride = 1;
  for (std::size_t back = 1; back <= x.rank(); ++back) {
    const std::int64_t dim = out[out.rank() - back], own = x[x.rank() - back];
    index += own == 1 ? 0 : i % dim * stride;
    stride *= own;
    i /= dim;
  }
  return index;
}

}  // namespace belfry
