// Parts of the folds of reduce.h, for hosts and GPUs.
#pragma once
#include <limits>

#include "belfry/framework/kernels/simd.h"

namespace belfry::kernels {

struct Add {
  template <class T>
  static constexpr T kNeutral = -T(0);  // x + -0 is x, also for x = -0
  template <class T>
  BELFRY_HD T operator()(T a, T b) const {
    return a + b;
  }
};

struct Max {
  template <class T>
  static constexpr T kNeutral = -std::numeric_limits<T>::infinity();
  template <class T>
  BELFRY_HD T operator()(T a, T b) const {
    const T larger = a > b ? a : b;  // b if that is NaN
    return a != a ? a : larger;
  }
};

// Three halvings of 8 terms: 0..3 with 4..7, and so on.
template <class Op, class T>
BELFRY_HD T fold8(Op op, T x0, T x1, T x2, T x3, T x4, T x5, T x6, T x7) {
  return op(op(op(x0, x4), op(x2, x6)), op(op(x1, x5), op(x3, x7)));
}

}  // namespace belfry::kernels
