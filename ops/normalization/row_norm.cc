#include "belfry/ops/normalization/row_norm.h"

#include "belfry/framework/kernels/math.h"
#include "belfry/framework/kernels/reduce.h"
#include "belfry/framework/kernels/simd.h"

namespace belfry::kernels {
namespace {

// Terms in a block of a fold.
constexpr std::int64_t kTerms = 1024;

template <class Term, class T>
BELFRY_KERNEL void compute_terms(Term term, std::int64_t begin, std::int64_t count, T* to) {
  for (std::int64_t i = 0; i < count; ++i) to[i] = term(begin + i);
}

// The fold of term(0), ..., term(n - 1), a block at a time: blocks are added pairwise.
template <class T, class Term>
T fold_terms(std::int64_t n, const Term& term) {
  T terms[kTerms], levels[32];
  std::uint64_t blocks = 0;
  for (std::int64_t i = 0; i < n; i += kTerms, ++blocks) {
    const std::int64_t count = n - i < kTerms ? n - i : kTerms;
    compute_terms(term, i, count, terms);
    T total = sum(terms, count);
    int level = 0;
    for (; (blocks >> level & 1) != 0; ++level) total = levels[level] + total;
    levels[level] = total;
  }
  T total = -T(0);
  for (int level = 0; level < 32; ++level)
    if ((blocks >> level & 1) != 0) total = levels[level] + total;
  return total;
}

template <class T>
struct Less {
  const T* x;
  T shift;
  BELFRY_HD T operator()(std::int64_t i) const { return x[i] - shift; }
};

template <class T>
struct SquareLess {
  const T* x;
  T shift;
  BELFRY_HD T operator()(std::int64_t i) const { return (x[i] - shift) * (x[i] - shift); }
};

template <class T>
struct Weighted {
  const T *dy, *gamma;
  BELFRY_HD T operator()(std::int64_t i) const { return dy[i] * gamma[i]; }
};

// The product of dy, gamma and the normalised row.
template <class T>
struct WeightedProduct {
  const T *dy, *gamma, *x;
  RowScale<T> by;
  BELFRY_HD T operator()(std::int64_t i) const {
    return dy[i] * gamma[i] * ((x[i] - by.mean) * by.scale);
  }
};

template <bool centred, class T>
BELFRY_KERNEL void normalise_loop(const T* x, std::int64_t n, RowScale<T> by, const T* gamma,
                                  const T* beta, T* y) {
  BELFRY_INDEPENDENT
  for (std::int64_t i = 0; i < n; ++i) {
    const T scaled = (x[i] - by.mean) * by.scale * gamma[i];
    if constexpr (centred)
      y[i] = scaled + beta[i];
    else
      y[i] = scaled;
  }
}

template <class T>
BELFRY_KERNEL void product_loop(const T* dy, const T* x, std::int64_t n, RowScale<T> by, T* y) {
  BELFRY_INDEPENDENT
  for (std::int64_t i = 0; i < n; ++i) y[i] = dy[i] * ((x[i] - by.mean) * by.scale);
}

template <class T>
BELFRY_KERNEL void gradient_loop(const T* dy, const T* x, std::int64_t n, RowScale<T> by,
                                 const T* gamma, T offset, T slope, T* dx) {
  BELFRY_INDEPENDENT
  for (std::int64_t i = 0; i < n; ++i)
    dx[i] = by.scale * (dy[i] * gamma[i] - offset - (x[i] - by.mean) * by.scale * slope);
}

}  // namespace

// The mean is summed as differences from the first element, so a large mean does not swallow them.
template <bool centred, class T>
RowScale<T> row_scale(const T* x, std::int64_t n, T epsilon) {
  const T count = static_cast<T>(n);
  const T mean = centred ? x[0] + fold_terms<T>(n, Less<T>{x, x[0]}) / count : T(0);
  const T square = fold_terms<T>(n, SquareLess<T>{x, mean}) / count;
  return {mean, T(1) / math::sqrt(square + epsilon)};
}

template <bool centred, class T>
void normalise_row(const T* x, std::int64_t n, const RowScale<T>& by, const T* gamma, const T* beta,
                   T* y) {
  normalise_loop<centred>(x, n, by, gamma, beta, y);
}

template <class T>
void scale_product(const T* dy, const T* x, std::int64_t n, const RowScale<T>& by, T* y) {
  product_loop(dy, x, n, by, y);
}

template <bool centred, class T>
void row_gradient(const T* dy, const T* x, std::int64_t n, const RowScale<T>& by, const T* gamma,
                  T* dx) {
  const T count = static_cast<T>(n);
  const T offset = centred ? fold_terms<T>(n, Weighted<T>{dy, gamma}) / count : T(0);
  const T slope = fold_terms<T>(n, WeightedProduct<T>{dy, gamma, x, by}) / count;
  gradient_loop(dy, x, n, by, gamma, offset, slope, dx);
}

BELFRY_ROW_NORM_OF(, true, float)
BELFRY_ROW_NORM_OF(, true, double)
BELFRY_ROW_NORM_OF(, false, float)
BELFRY_ROW_NORM_OF(, false, double)
BELFRY_SCALE_PRODUCT_OF(, float)
BELFRY_SCALE_PRODUCT_OF(, double)

}  // namespace belfry::kernels
