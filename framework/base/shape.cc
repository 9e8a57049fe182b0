#include "belfry/framework/base/shape.h"

#include <algorithm>

#include "belfry/framework/base/error.h"
#include "belfry/framework/base/require.h"

namespace belfry {

bool Shape::is_fully_known() const { return std::ranges::find(dims_, kUnknown) == dims_.end(); }

std::int64_t Shape::elements() const {
  if (!is_fully_known()) return kUnknown;
  return product(0, rank());
}

std::int64_t Shape::product(std::size_t from, std::size_t to) const {
  constexpr std::int64_t kMost = std::int64_t{1} << 59;  // bytes fit in 63 bits
  std::int64_t total = 1;
  for (std::size_t axis = from; axis < to; ++axis) {
    const std::int64_t dim = dims_[axis];
    require(dim >= 0, "shape ", *this, " has an unknown or negative dimension");
    require(dim == 0 || total <= kMost / dim, "shape ", *this, " has too many elements");
    total *= dim;
  }
  return total;
}

bool Shape::compatible(const Shape& other) const {
  return std::ranges::equal(dims_, other.dims_, [](std::int64_t a, std::int64_t b) {
    return a == b || a == kUnknown || b == kUnknown;
  });
}

std::string Shape::str() const {
  std::string out = "[";
  for (std::size_t axis = 0; axis < rank(); ++axis) {
    if (axis > 0) out += ',';
    out += dims_[axis] == kUnknown ? "?" : std::to_string(dims_[axis]);
  }
  return out + "]";
}

}  // namespace belfry
