// What pointwise ops do to one element, for hosts and GPUs. Gradients take the gradient of the
// output first. NaN in any argument gives NaN.
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
    return -x;
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
