// Products of matrices one after the other.
#pragma once
#include <cstdint>
#include <vector>

#include "belfry/framework/base/shape.h"

namespace belfry {

// A leading dimension of a product, and how many matrices of each factor lie between its elements:
// 0 where the factor is repeated.
struct LeadingDimension {
  std::int64_t size = 1, step_a = 0, step_b = 0;
};

// From the innermost out. Neighbours are one dimension where that is possible, so that factors with
// equal leading dimensions have one at most.
inline std::vector<LeadingDimension> leading_dimensions(const Shape& a, const Shape& b,
                                                        const Shape& product) {
  std::vector<LeadingDimension> dims;
  std::int64_t step_a = 1, step_b = 1;
  for (std::size_t back = 3; back <= product.rank(); ++back) {
    const std::int64_t own_a = back <= a.rank() ? a[a.rank() - back] : 1;
    const std::int64_t own_b = back <= b.rank() ? b[b.rank() - back] : 1;
    const LeadingDimension dim{product[product.rank() - back], own_a == 1 ? 0 : step_a,
                               own_b == 1 ? 0 : step_b};
    step_a *= own_a;
    step_b *= own_b;
    if (dim.size == 1) continue;
    if (!dims.empty() && dim.step_a == dims.back().step_a * dims.back().size &&
        dim.step_b == dims.back().step_b * dims.back().size)
      dims.back().size *= dim.size;
    else
      dims.push_back(dim);
  }
  return dims;
}

// Calls product(a, b) with the number of the matrix of each factor, for one product after the
// other.
template <class Product>
void each_leading(const std::vector<LeadingDimension>& dims, std::size_t depth, std::int64_t a,
                  std::int64_t b, const Product& product) {
  if (depth == 0) return product(a, b);
  const LeadingDimension& dim = dims[depth - 1];
  for (std::int64_t i = 0; i < dim.size; ++i)
    each_leading(dims, depth - 1, a + i * dim.step_a, b + i * dim.step_b, product);
}

}  // namespace belfry
