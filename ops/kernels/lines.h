// Lines of a tensor along an axis, or along neighbouring axes.
#pragma once
#include <algorithm>
#include <cstdint>
#include <vector>

#include "belfry/framework/base/shape.h"
#include "belfry/framework/kernels/simd.h"

namespace belfry {

// A tensor [outer, n, inner]. Line l has elements first(l), first(l) + inner, ...
struct Lines {
  Lines(const Shape& x, std::size_t first_axis, std::size_t axes = 1)
      : outer(x.product(0, first_axis)),
        n(x.product(first_axis, first_axis + axes)),
        inner(x.product(first_axis + axes, x.rank())) {}
  // Along the axes that are true, which are neighbours.
  Lines(const Shape& x, const std::vector<bool>& axes)
      : Lines(x, static_cast<std::size_t>(std::ranges::find(axes, true) - axes.begin()),
              static_cast<std::size_t>(std::ranges::count(axes, true))) {}

  BELFRY_HD std::int64_t count() const { return outer * inner; }
  BELFRY_HD std::int64_t first(std::int64_t line) const {
    return line / inner * n * inner + line % inner;
  }

  std::int64_t outer, n, inner;
};

}  // namespace belfry
