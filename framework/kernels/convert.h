// Conversions of one element between types, for hosts and GPUs.
#pragma once
#include <limits>
#include <type_traits>

#include "belfry/framework/kernels/simd.h"

namespace belfry::functors {

// C++'s conversion where it is defined, else the nearest value.
template <class T>
inline constexpr T kLeast = std::numeric_limits<T>::min();
template <class T>
inline constexpr T kMost = std::numeric_limits<T>::max();
template <class To>
struct Convert {
  template <class From>
  BELFRY_HD To operator()(From x) const {
    if constexpr (std::is_same_v<To, bool>) {
      return x != From(0);
    } else if constexpr (std::is_floating_point_v<From> && std::is_integral_v<To>) {
      // The limits in type From, which may round the upper one up to a power of two.
      constexpr From kLow = static_cast<From>(kLeast<To>), kHigh = static_cast<From>(kMost<To>);
      const To inside = static_cast<To>(x > kLow && x < kHigh ? x : From(0));
      const To below = x <= kLow ? kLeast<To> : inside;
      return x >= kHigh ? kMost<To> : below;
    } else {
      return static_cast<To>(x);
    }
  }
};

}  // namespace belfry::functors
