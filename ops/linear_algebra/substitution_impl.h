// Solves systems whose matrix is a triangle.
#pragma once
#include <cstdint>

#include "belfry/ops/linear_algebra/lapack_impl.h"

namespace belfry {

// The part of a matrix a [n, n] that counts; the other elements are not read.
struct Triangle {
  bool upper = false;
  bool transpose = false;      // the matrix of the system is the transpose of that part
  bool unit_diagonal = false;  // with ones on the diagonal, whatever a has there
};

// Replaces x [n, k] by the solution of triangle(a) y = x.
struct PlainSubstitution {
  template <class T>
  static void run(Triangle triangle, std::int64_t n, std::int64_t k, const T* a, T* x) {
    const bool forward = triangle.upper == triangle.transpose;
    for (std::int64_t step = 0; step < n; ++step) {
      const std::int64_t i = forward ? step : n - 1 - step;
      for (std::int64_t column = 0; column < k; ++column) {
        T rest = x[i * k + column];
        for (std::int64_t known = 0; known < step; ++known) {
          const std::int64_t j = forward ? known : n - 1 - known;
          rest -= a[triangle.transpose ? j * n + i : i * n + j] * x[j * k + column];
        }
        x[i * k + column] = triangle.unit_diagonal ? rest : rest / a[i * n + i];
      }
    }
  }
};

#if BELFRY_LAPACK
struct LapackSubstitution {
  // BLAS sees transposes. For one column, that is the column itself, and the matrix has to be
  // transposed back; otherwise it solves for rows, from the right.
  template <class T>
  static void run(Triangle triangle, std::int64_t n, std::int64_t k, const T* a, T* x) {
    const bool column = k == 1;
    const int size = static_cast<int>(n), columns = static_cast<int>(k), one = 1;
    const T factor = 1;
    if (n == 0 || k == 0) return;
    Lapack<T>::trsm(column ? "L" : "R", triangle.upper ? "L" : "U",
                    triangle.transpose == column ? "N" : "T", triangle.unit_diagonal ? "U" : "N",
                    column ? &size : &columns, column ? &one : &size, &factor, a, &size, x,
                    column ? &size : &columns, 1, 1, 1, 1);
  }
};
#endif

}  // namespace belfry
