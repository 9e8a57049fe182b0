// The larger and the smaller of two numbers, for hosts and GPUs. The result does not depend on the
// order of the numbers: 0 is larger than -0, and NaN is both.
#pragma once
#include <limits>
#include <type_traits>

#include "belfry/framework/kernels/math.h"

namespace belfry::kernels {

struct Larger {
  template <class T>
  static constexpr T kNeutral = std::numeric_limits<T>::has_infinity
                                    ? -std::numeric_limits<T>::infinity()
                                    : std::numeric_limits<T>::lowest();
  // Of numbers or vectors, in one instruction. Ignores NaN in x, and the signs of zeros.
  template <class V>
  BELFRY_HD static void keep(V& larger, const V& x) {
    larger = x > larger ? x : larger;
  }
  template <class T>
  BELFRY_HD T operator()(T a, T b) const {
    const T larger = a > b ? a : b;  // b if one is NaN
    if constexpr (std::is_floating_point_v<T>) {
      const T equal = math::from_bits<T>(math::to_bits(a) & math::to_bits(b));
      const T number = a == b ? equal : larger;
      return a != a ? a : number;
    } else {
      return larger;
    }
  }
};

struct Smaller {
  template <class T>
  static constexpr T kNeutral = std::numeric_limits<T>::has_infinity
                                    ? std::numeric_limits<T>::infinity()
                                    : std::numeric_limits<T>::max();
  // Of numbers or vectors, in one instruction. Ignores NaN in x, and the signs of zeros.
  template <class V>
  BELFRY_HD static void keep(V& smaller, const V& x) {
    smaller = x < smaller ? x : smaller;
  }
  template <class T>
  BELFRY_HD T operator()(T a, T b) const {
    const T smaller = a < b ? a : b;  // b if one is NaN
    if constexpr (std::is_floating_point_v<T>) {
      const T equal = math::from_bits<T>(math::to_bits(a) | math::to_bits(b));
      const T number = a == b ? equal : smaller;
      return a != a ? a : number;
    } else {
      return smaller;
    }
  }
};

}  // namespace belfry::kernels
