// The passes of layer and RMS normalisation over one row x [n], n >= 1. f32 and f64. Sums and means
// are folds (framework/kernels/reduce.h). `centred`: subtracts the mean, as layer normalisation
// does.
#pragma once
#include <cstdint>

namespace belfry::kernels {

// A row becomes (x - mean) scale.
template <class T>
struct RowScale {
  T mean, scale;
};

// The mean and 1 / sqrt(variance + epsilon); or 0 and 1 / sqrt(mean of x^2 + epsilon).
template <bool centred, class T>
RowScale<T> row_scale(const T* x, std::int64_t n, T epsilon);

// y = (x - mean) scale gamma, and + beta if centred. y may be x.
template <bool centred, class T>
void normalise_row(const T* x, std::int64_t n, const RowScale<T>& by, const T* gamma, const T* beta,
                   T* y);

// dgamma of one row: y = dy (x - mean) scale.
template <class T>
void scale_product(const T* dy, const T* x, std::int64_t n, const RowScale<T>& by, T* y);

// dx = scale (g - mean(g) - z mean(g z)) with g = dy gamma and z = (x - mean) scale, where mean(g)
// is left out unless centred. dx may be dy.
template <bool centred, class T>
void row_gradient(const T* dy, const T* x, std::int64_t n, const RowScale<T>& by, const T* gamma,
                  T* dx);

#define BELFRY_ROW_NORM_OF(linkage, centred, T)                                            \
  linkage template RowScale<T> row_scale<centred>(const T*, std::int64_t, T);              \
  linkage template void normalise_row<centred>(const T*, std::int64_t, const RowScale<T>&, \
                                               const T*, const T*, T*);                    \
  linkage template void row_gradient<centred>(const T*, const T*, std::int64_t,            \
                                              const RowScale<T>&, const T*, T*);
#define BELFRY_SCALE_PRODUCT_OF(linkage, T) \
  linkage template void scale_product(const T*, const T*, std::int64_t, const RowScale<T>&, T*);
BELFRY_ROW_NORM_OF(extern, true, float)
BELFRY_ROW_NORM_OF(extern, true, double)
BELFRY_ROW_NORM_OF(extern, false, float)
BELFRY_ROW_NORM_OF(extern, false, double)
BELFRY_SCALE_PRODUCT_OF(extern, float)
BELFRY_SCALE_PRODUCT_OF(extern, double)

}  // namespace belfry::kernels
