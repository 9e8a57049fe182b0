// Which elements of each row of a matrix Triangle keeps.
#pragma once
#include "belfry/framework/graph/kernel.h"
#include "belfry/framework/kernels/simd.h"
#include "belfry/ops/shapes/triangle.h"

namespace belfry {

struct TriangleRows {
  TriangleRows(const Shape& x, const TriangleOptions& options)
      : m(x[x.rank() - 2]), n(x.back()), diagonal(options.diagonal), upper(options.upper) {}

  // The columns of row r, counted through all matrices.
  BELFRY_HD WorkRange kept(std::int64_t r) const {
    const std::int64_t edge = r % m + diagonal + (upper ? 0 : 1);
    const std::int64_t inside = edge < 0 ? 0 : edge > n ? n : edge;
    return upper ? WorkRange{inside, n} : WorkRange{0, inside};
  }

  std::int64_t m, n, diagonal;
  bool upper;
};

}  // namespace belfry
