#include "belfry/framework/base/shape.h"

#include <algorithm>

#include "belfry/framework/base/error.h"
#include "belfry/framework/base/require.h"

namespace belfry {

Shape::Shape(std::span<const std::int64_t> dims) : rank_(dims.size()) {
  if (rank_ <= kFew)
    std::ranges::copy(dims, few_.begin());
  else
    many_.assign(dims.begin(), dims.end());
}

bool Shape::is_fully_known() const { return std::ranges::count(all(), kUnknownSize) == 0; }

std::int64_t Shape::elements() const {
  if (!is_fully_known()) return kUnknownSize;
  return product(0, rank());
}

std::int64_t Shape::product(std::size_t from, std::size_t to) const {
  constexpr std::int64_t kMost = std::int64_t{1} << 59;  // bytes fit in 63 bits
  std::int64_t total = 1;
  for (std::size_t axis = from; axis < to; ++axis) {
    const std::int64_t dim = (*this)[axis];
    require(dim >= 0, "shape ", *this, " has an unknown or negative dimension");
    require(dim == 0 || total <= kMost / dim, "shape ", *this, " has too many elements");
    total *= dim;
  }
  return total;
}

bool Shape::compatible(const Shape& other) const {
  return std::ranges::equal(all(), other.all(), [](std::int64_t a, std::int64_t b) {
    return a == b || a == kUnknownSize || b == kUnknownSize;
  });
}

std::string Shape::str() const {
  std::string out = "[";
  for (std::size_t axis = 0; axis < rank(); ++axis) {
    if (axis > 0) out += ',';
    const std::int64_t dim = (*this)[axis];
    out += dim == kUnknownSize ? "?" : std::to_string(dim);
  }
  return out + "]";
}

}  // namespace belfry
