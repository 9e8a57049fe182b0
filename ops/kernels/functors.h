// What pointwise ops do to one element, for hosts and GPUs. Gradients take the gradient of the
// output first. NaN in any argument gives NaN.
#pragma once
#include <limits>
#include <type_traits>

#include "belfry/framework/kernels/math.h"
#include "belfry/framework/kernels/trig.h"

namespace belfry::functors {

// Integers wrap, as unsigned arithmetic does.
template <class T>
struct Wrapping {
  using Type = T;
};
template <>
struct Wrapping<std::int32_t> {
  using Type = std::uint32_t;
};
template <>
struct Wrapping<std::int64_t> {
  using Type = std::uint64_t;
};

struct Add {
  template <class T>
  BELFRY_HD T operator()(T a, T b) const {
    using W = typename Wrapping<T>::Type;
    return static_cast<T>(static_cast<W>(a) + static_cast<W>(b));
  }
};
struct Sub {
  template <class T>
  BELFRY_HD T operator()(T a, T b) const {
    using W = typename Wrapping<T>::Type;
    return static_cast<T>(static_cast<W>(a) - static_cast<W>(b));
  }
};
struct Mul {
  template <class T>
  BELFRY_HD T operator()(T a, T b) const {
    using W = typename Wrapping<T>::Type;
    return static_cast<T>(static_cast<W>(a) * static_cast<W>(b));
  }
};
// Floating point only.
struct Div {
  template <class T>
  BELFRY_HD T operator()(T a, T b) const {
    return a / b;
  }
};

struct Neg {
  template <class T>
  BELFRY_HD T operator()(T x) const {
    using W = typename Wrapping<T>::Type;
    return static_cast<T>(-static_cast<W>(x));
  }
};
struct Square {
  template <class T>
  BELFRY_HD T operator()(T x) const {
    return x * x;
  }
};
struct Exp {
  template <class T>
  BELFRY_HD T operator()(T x) const {
    return math::exp(x);
  }
};
struct Log {
  template <class T>
  BELFRY_HD T operator()(T x) const {
    return math::log(x);
  }
};
struct Sqrt {
  template <class T>
  BELFRY_HD T operator()(T x) const {
    return math::sqrt(x);
  }
};
struct Sin {
  template <class T>
  BELFRY_HD T operator()(T x) const {
    return math::sin(x);
  }
};
struct Cos {
  template <class T>
  BELFRY_HD T operator()(T x) const {
    return math::cos(x);
  }
};

struct Relu {
  template <class T>
  BELFRY_HD T operator()(T x) const {
    return x <= T(0) ? T(0) : x;
  }
};
// y is the output of Relu.
struct ReluGrad {
  template <class T>
  BELFRY_HD T operator()(T dy, T y) const {
    const T off = dy != dy ? dy : T(0);
    const T closed = y <= T(0) ? off : y;
    return y > T(0) ? dy : closed;
  }
};

struct Tanh {
  template <class T>
  BELFRY_HD T operator()(T x) const {
    return math::tanh(x);
  }
};
struct TanhGrad {
  template <class T>
  BELFRY_HD T operator()(T dy, T y) const {
    return dy * (T(1) - y * y);
  }
};

struct Sigmoid {
  template <class T>
  BELFRY_HD T operator()(T x) const {
    return math::sigmoid(x);
  }
};
struct SigmoidGrad {
  template <class T>
  BELFRY_HD T operator()(T dy, T y) const {
    return dy * (y * (T(1) - y));
  }
};

// x times, over or as counted by a weight: 0 where that is 0, whatever x is.
struct Times {
  template <class T>
  BELFRY_HD T operator()(T x, T weight) const {
    return weight == T(0) ? T(0) : weight * x;
  }
};
struct Over {
  template <class T>
  BELFRY_HD T operator()(T x, T weight) const {
    return weight == T(0) ? T(0) : x / weight;
  }
};
struct Keep {
  template <class T>
  BELFRY_HD T operator()(T x, T weight) const {
    return weight == T(0) ? T(0) : weight != weight ? weight : x;  // NaN stays NaN
  }
};

// The conversion of C++ where that is defined, else the nearest value.
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
      // The limits as From: the upper one rounds up to a power of two where From is too short.
      constexpr From kLow = static_cast<From>(kLeast<To>), kHigh = static_cast<From>(kMost<To>);
      const To inside = static_cast<To>(x > kLow && x < kHigh ? x : From(0));
      const To below = x <= kLow ? kLeast<To> : inside;
      return x >= kHigh ? kMost<To> : below;
    } else {
      return static_cast<To>(x);
    }
  }
};

// The first of two, for copies that repeat it.
struct First {
  template <class T>
  BELFRY_HD T operator()(T a, T) const {
    return a;
  }
};
// The same over a count.
template <class T>
struct FirstOver {
  T count;
  BELFRY_HD T operator()(T a, T) const { return a / count; }
};

}  // namespace belfry::functors
