// The arithmetic of this room's ops on one element, for hosts and GPUs. As in
// ops/kernels/functors.h, NaN in any argument gives NaN, except where a comment says otherwise.
#pragma once
#include "belfry/framework/kernels/powers.h"
#include "belfry/ops/kernels/functors.h"

namespace belfry::functors {

struct Abs {
  template <class T>
  BELFRY_HD T operator()(T x) const {
    if constexpr (std::is_floating_point_v<T>)
      return math::abs(x);
    else
      return x < T(0) ? Neg{}(x) : x;
  }
};
struct Sign {
  template <class T>
  BELFRY_HD T operator()(T x) const {
    const T negative = x < T(0) ? T(-1) : x;
    return x > T(0) ? T(1) : negative;
  }
};

struct Floor {
  template <class T>
  BELFRY_HD T operator()(T x) const {
    return math::floor(x);
  }
};
struct Ceil {
  template <class T>
  BELFRY_HD T operator()(T x) const {
    return math::ceil(x);
  }
};
struct Round {
  template <class T>
  BELFRY_HD T operator()(T x) const {
    return math::round(x);
  }
};

struct Log1p {
  template <class T>
  BELFRY_HD T operator()(T x) const {
    return math::log1p(x);
  }
};
struct Expm1 {
  template <class T>
  BELFRY_HD T operator()(T x) const {
    return math::expm1(x);
  }
};
struct Erf {
  template <class T>
  BELFRY_HD T operator()(T x) const {
    return math::erf(x);
  }
};

// The share of a in the gradient of its maximum with b.
struct Above {
  template <class T>
  BELFRY_HD T operator()(T a, T b) const {
    const T neither = a < b ? T(0) : a + b;  // NaN
    const T tied = a == b ? T(0.5) : neither;
    return a > b ? T(1) : tied;
  }
};
// x^0 and 1^y are 1 even for NaN, as in C.
struct Pow {
  template <class T>
  BELFRY_HD T operator()(T x, T y) const {
    return math::pow(x, y);
  }
};

struct ClipTo {
  double low, high;
  template <class T>
  BELFRY_HD T operator()(T x) const {
    return math::at_least(math::at_most(x, static_cast<T>(high)), static_cast<T>(low));
  }
};

// Truths of two elements. Comparisons with NaN are false, but for NotEqual.
struct Equal {
  template <class T>
  BELFRY_HD bool operator()(T a, T b) const {
    return a == b;
  }
};
struct NotEqual {
  template <class T>
  BELFRY_HD bool operator()(T a, T b) const {
    return a != b;
  }
};
struct Less {
  template <class T>
  BELFRY_HD bool operator()(T a, T b) const {
    return a < b;
  }
};
struct LessEqual {
  template <class T>
  BELFRY_HD bool operator()(T a, T b) const {
    return a <= b;
  }
};
struct And {
  template <class T>
  BELFRY_HD bool operator()(T a, T b) const {
    return (a != T(0)) & (b != T(0));
  }
};
struct Or {
  template <class T>
  BELFRY_HD bool operator()(T a, T b) const {
    return (a != T(0)) | (b != T(0));
  }
};

// Activations and their gradients, with one parameter.
struct LeakyRelu {
  double slope;
  template <class T>
  BELFRY_HD T operator()(T x) const {
    const T below = x * static_cast<T>(slope);
    return x > T(0) ? x : below;
  }
};
struct LeakyReluGrad {
  double slope;
  template <class T>
  BELFRY_HD T operator()(T dy, T x) const {
    const T below = dy * static_cast<T>(slope);
    const T closed = x != x ? x : below;
    return x > T(0) ? dy : closed;
  }
};
struct Elu {
  double alpha;
  template <class T>
  BELFRY_HD T operator()(T x) const {
    const T below = static_cast<T>(alpha) * math::expm1(x);
    return x > T(0) ? x : below;
  }
};
struct EluGrad {
  double alpha;
  template <class T>
  BELFRY_HD T operator()(T dy, T x) const {
    const T below = dy * (static_cast<T>(alpha) * math::exp(x));
    return x > T(0) ? dy : below;
  }
};
struct HardSigmoid {
  double unused;
  template <class T>
  BELFRY_HD T operator()(T x) const {
    return math::at_least(math::at_most(x + T(3), T(6)), T(0)) / T(6);
  }
};
struct HardSigmoidGrad {
  double unused;
  template <class T>
  BELFRY_HD T operator()(T dy, T x) const {
    const T off = dy != dy ? dy : T(0);
    const T flat = x != x ? x : off;
    const T slope = dy / T(6);
    return math::abs(x) < T(3) ? slope : flat;
  }
};
struct HardSwish {
  double unused;
  template <class T>
  BELFRY_HD T operator()(T x) const {
    return x * math::at_least(math::at_most(x + T(3), T(6)), T(0)) / T(6);
  }
};
struct HardSwishGrad {
  double unused;
  template <class T>
  BELFRY_HD T operator()(T dy, T x) const {
    const T near = dy * (x / T(3) + T(0.5));  // NaN for NaN
    const T off = dy != dy ? dy : T(0);
    const T low = x <= T(-3) ? off : near;
    return x >= T(3) ? dy : low;
  }
};
struct Softplus {
  double beta;
  template <class T>
  BELFRY_HD T operator()(T x) const {
    const T z = static_cast<T>(beta) * x;
    const T positive = z < T(0) ? T(0) : z;
    return (positive + math::log1p(math::exp(-math::abs(z)))) / static_cast<T>(beta);
  }
};
struct SoftplusGrad {
  double beta;
  template <class T>
  BELFRY_HD T operator()(T dy, T x) const {
    return dy * math::sigmoid(static_cast<T>(beta) * x);
  }
};

}  // namespace belfry::functors
