// Rotations of pairs of columns by angles that grow with the time, for hosts and GPUs.
#pragma once
#include "belfry/framework/graph/kernel.h"
#include "belfry/framework/kernels/trig.h"

namespace belfry::kernels {

// The cosine and sine of an angle.
template <class T>
struct Rotation {
  T cosine, sine;
};

// Heads of x [batch, time, heads * 2 * pairs].
struct Rotations {
  // `inverse`: by the negative angles.
  Rotations(const Shape& x, std::int64_t of_heads, double base, bool inverse)
      : time(x[1]),
        heads(of_heads),
        pairs(x[2] / heads / 2),
        log_base(math::log(base)),
        sign(inverse ? -1 : 1) {}

  // The rotation of a pair at time t, found in f64.
  template <class T>
  BELFRY_HD Rotation<T> at(std::int64_t t, std::int64_t pair) const {
    const double share = static_cast<double>(pair) / static_cast<double>(pairs);
    const double angle = static_cast<double>(t) * math::exp(-share * log_base);
    return {static_cast<T>(math::cos(angle)), static_cast<T>(sign * math::sin(angle))};
  }

  std::int64_t time, heads, pairs;
  double log_base, sign;
};

}  // namespace belfry::kernels
