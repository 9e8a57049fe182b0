// Pointwise ops on one element, for hosts and GPUs. Gradients take the gradient of the output
// first. NaN in any argument gives NaN.
#pragma once
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

struct Silu {
  template <class T>
  BELFRY_HD T operator()(T x) const {
    return x * math::sigmoid(x);
  }
};
struct SiluGrad {
  template <class T>
  BELFRY_HD T operator()(T dy, T x) const {
    const T s = math::sigmoid(x);
    return dy * (s + x * (s * (T(1) - s)));
  }
};

struct Gelu {
  template <class T>
  BELFRY_HD static T below(T x) {  // the share of a standard normal variable
    return T(0.5) + T(0.5) * math::erf(x * T(0x1.6a09e667f3bcdp-1));
  }
  template <class T>
  BELFRY_HD T operator()(T x) const {
    return x * below(x);
  }
};
struct GeluGrad {
  template <class T>
  BELFRY_HD T operator()(T dy, T x) const {
    const T density = T(0x1.9884533d43651p-2) * math::exp(x * x * T(-0.5));
    return dy * (Gelu::below(x) + x * density);
  }
};

// (1 + tanh(v / 2)) / 2 is sigmoid(v), and more exact where x is far below 0.
struct GeluTanh {
  static constexpr double kSlope = 0x1.9884533d43651p+0, kBend = 0.044715;  // 2 sqrt(2 / pi)
  // Beyond 32 the sigmoid is 0 or 1, and v could overflow.
  template <class T>
  BELFRY_HD static T bounded(T x) {
    return math::at_least(math::at_most(x, T(32)), T(-32));
  }
  template <class T>
  BELFRY_HD static T gate(T x) {
    return math::sigmoid(x * (T(kSlope) + T(kSlope * kBend) * (x * x)));
  }
  template <class T>
  BELFRY_HD T operator()(T x) const {
    return x * gate(bounded(x));
  }
};
struct GeluTanhGrad {
  template <class T>
  BELFRY_HD T operator()(T dy, T x) const {
    const T near = GeluTanh::bounded(x), s = GeluTanh::gate(near);
    const T slope = T(GeluTanh::kSlope) + T(3 * GeluTanh::kSlope * GeluTanh::kBend) * (near * near);
    return dy * (s + near * (s * (T(1) - s)) * slope);
  }
};

// The loss of a logit and its target.
struct SigmoidCrossEntropy {
  template <class T>
  BELFRY_HD T operator()(T x, T z) const {
    const T e = math::exp(-math::abs(x)), sum = T(1) + e;
    const T lost = e - (sum - T(1));  // by rounding; all of a small e
    return (x > T(0) ? x : T(0)) - x * z + (math::log(sum) + lost / sum);
  }
};

// x times, over or as counted by a weight: 0 if the weight is 0, whatever x is.
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

// The first of two values, for copies that repeat it.
struct First {
  template <class T>
  BELFRY_HD T operator()(T a, T) const {
    return a;
  }
};
// The first of two values over a count.
template <class T>
struct FirstOver {
  T count;
  BELFRY_HD T operator()(T a, T) const { return a / count; }
};

}  // namespace belfry::functors
