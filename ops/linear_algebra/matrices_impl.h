// Batches of square matrices, as kernels see them.
#pragma once
#include <algorithm>
#include <cmath>
#include <cstdint>
#include <limits>
#include <string>

#include "belfry/framework/graph/op.h"

namespace belfry {

// Why the ops of this room run on hosts alone.
inline constexpr char kByLapack[] = "LAPACK computes it, on hosts";

// Requires that an input is f32 or f64 [..., n, n], with a leading dimension at least.
void require_square(const ShapeContext& c, std::size_t input);

// Matrices [rows, ..., n, n].
struct SquareMatrices {
  explicit SquareMatrices(const Shape& shape)
      : n(shape.back()), per_row(shape.product(1, shape.rank() - 2)) {}

  std::int64_t n, per_row;

  std::int64_t elements() const { return n * n; }
  // Calls f(i) for each matrix of the rows of a launch.
  template <class F>
  void each(const KernelPointers& p, const F& f) const {
    for (std::int64_t i = p.begin() * per_row; i < p.end() * per_row; ++i) f(i);
  }
  // The number in the batch of matrix i of a launch.
  std::int64_t number(const KernelPointers& p, std::int64_t i) const {
    return p.first_row() * per_row + i;
  }
};

// Throws "<node>: matrix 5 of the batch <why>".
[[noreturn]] void refuse_matrix(const Node& node, std::int64_t matrix, const std::string& why);

// A matrix that cannot be factorised because it is not finite has factors of NaN, so that training
// handles it like any other number that is not finite. Returns false if all elements are finite.
template <class T>
bool spread_nan(T* a, std::int64_t elements) {
  if (std::all_of(a, a + elements, [](T x) { return std::isfinite(x); })) return false;
  std::fill_n(a, elements, std::numeric_limits<T>::quiet_NaN());
  return true;
}

}  // namespace belfry
