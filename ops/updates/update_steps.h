// What optimizers do to one element of a variable, its slots and gradient; for hosts and GPUs.
#pragma once
#include <cstdint>

#include "belfry/framework/kernels/math.h"
#include "belfry/ops/updates/adam_update.h"

namespace belfry::kernels {

template <class T>
struct SgdStep {
  T rate, factor;  // the gradient's
  BELFRY_HD void operator()(T gradient, T& x) const { x = x - rate * (factor * gradient); }
};

template <class T>
struct MomentumStep {
  T momentum, rate, factor;
  BELFRY_HD void operator()(T gradient, T& x, T& sum) const {
    sum = momentum * sum + factor * gradient;
    x = x - rate * sum;
  }
};

// base^n for n >= 0, by squaring: the same bits everywhere, which the C library's pow is not. Its
// relative error is below n * 2^-53, which in 1 - beta^n is at most 2^-53 / (e (1 - beta)).
BELFRY_HD double power(double base, std::int64_t n) {
  double result = 1;
  for (; n > 0; n >>= 1) {
    if (n & 1) result *= base;
    base *= base;
  }
  return result;
}

template <class T>
struct AdamStep {
  T beta1, rest1, beta2, rest2, epsilon, rate, factor;

  // At a step >= 1.
  BELFRY_HD static AdamStep at(const AdamUpdateOptions& o, std::int64_t step, T rate, T factor) {
    const double correction = math::sqrt(1 - power(o.beta2, step)) / (1 - power(o.beta1, step));
    return {static_cast<T>(o.beta1),
            static_cast<T>(1 - o.beta1),
            static_cast<T>(o.beta2),
            static_cast<T>(1 - o.beta2),
            static_cast<T>(o.epsilon),
            static_cast<T>(static_cast<double>(rate) * correction),
            factor};
  }

  BELFRY_HD void operator()(T scaled, T& x, T& m, T& v) const {
    const T gradient = factor * scaled;
    m = beta1 * m + rest1 * gradient;
    v = beta2 * v + rest2 * (gradient * gradient);
    x = x - rate * m / (math::sqrt(v) + epsilon);
  }
};

}  // namespace belfry::kernels
