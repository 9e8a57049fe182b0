// Products of row-major matrices, C = op(A) op(B), one thread.
#pragma once
#include <cstdint>

namespace belfry::kernels {

// op(A) is [m, k], op(B) is [k, n], C is [m, n]. The strides are the distances between rows of A
// and B as they are stored; C is dense.
struct GemmShape {
  std::int64_t m, n, k;
  bool transpose_a = false, transpose_b = false;
  std::int64_t row_a, row_b;
};

// Our own kernel, blocked for registers and the first cache: about a third of peak performance.
// Rows of C do not depend on m. f32 and f64.
template <class T>
void gemm(const GemmShape& shape, const T* a, const T* b, T* c);

extern template void gemm(const GemmShape&, const float*, const float*, float*);
extern template void gemm(const GemmShape&, const double*, const double*, double*);

// Plain loops.
template <class T>
void gemm_reference(const GemmShape& s, const T* a, const T* b, T* c) {
  for (std::int64_t i = 0; i < s.m; ++i)
    for (std::int64_t j = 0; j < s.n; ++j) {
      T sum = 0;
      for (std::int64_t p = 0; p < s.k; ++p)
        sum += a[s.transpose_a ? p * s.row_a + i : i * s.row_a + p] *
               b[s.transpose_b ? j * s.row_b + p : p * s.row_b + j];
      c[i * s.n + j] = sum;
    }
}

}  // namespace belfry::kernels
