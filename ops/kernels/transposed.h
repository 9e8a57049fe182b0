// Where the elements of a transposed tensor come from.
#pragma once
#include <cstdint>
#include <vector>

#include "belfry/framework/base/shape.h"
#include "belfry/ops/kernels/axes.h"

namespace belfry {

// The axis of x for each axis of the result.
inline std::vector<std::size_t> source_axes(const std::vector<int>& order, std::size_t rank) {
  std::vector<std::size_t> axes;
  for (std::size_t i = 0; i < rank; ++i)
    axes.push_back(order.empty() ? rank - 1 - i : from_end(order[i], rank));
  return axes;
}

struct TransposedDim {
  std::int64_t size, from, to;  // strides in elements
};

// Dimensions of the output, outermost first, at least two. Dimensions that stay neighbours are
// joined, except dimension 0, which is divided among calls.
inline std::vector<TransposedDim> transposed_dims(const Shape& x, const Shape& out,
                                                  const std::vector<int>& order) {
  const std::vector<std::size_t> axes = source_axes(order, x.rank());
  std::vector<TransposedDim> dims;
  for (std::size_t i = 0; i < axes.size(); ++i) {
    const TransposedDim dim{out[i], x.product(axes[i] + 1, x.rank()),
                            out.product(i + 1, out.rank())};
    if (i >= 2 && dims.back().from == dim.from * dim.size)
      dims.back() = {dims.back().size * dim.size, dim.from, dim.to};
    else
      dims.push_back(dim);
  }
  while (dims.size() < 2) dims.push_back({1, 1, 1});
  return dims;
}

}  // namespace belfry
