// One optimizer step on one element of a variable, its slots and gradient; for hosts and GPUs.
#pragma once
#include <cstdint>

#include "belfry/framework/kernels/math.h"
#include "belfry/ops/updates/adam_update.h"
#include "belfry/ops/updates/momentum_update.h"
#include "belfry/ops/updates/rms_prop_update.h"

namespace belfry::kernels {

// A gradient with weight decay. If decay is 0, even infinite weights or signs of zeros have no
// effect.
template <class T>
BELFRY_HD T decayed(T gradient, T decay, T x) {
  const T sum = gradient + decay * x;
  return decay == T(0) ? gradient : sum;
}

template <class T>
struct SgdStep {
  T rate, factor;  // the gradient's
  T decay;
  BELFRY_HD void operator()(T gradient, T& x) const {
    x = x - rate * decayed(factor * gradient, decay, x);
  }
};

template <class T>
struct MomentumStep {
  T momentum, rate, factor, decay;
  bool nesterov;

  BELFRY_HD static MomentumStep of(const MomentumUpdateOptions& o, T rate, T factor) {
    return {static_cast<T>(o.momentum), rate, factor, static_cast<T>(o.weight_decay),
            o.form == MomentumForm::kNesterov};
  }

  BELFRY_HD void operator()(T scaled, T& x, T& sum) const {
    const T gradient = decayed(factor * scaled, decay, x);
    sum = momentum * sum + gradient;
    const T ahead = gradient + momentum * sum;
    x = x - rate * (nesterov ? ahead : sum);
  }
};

template <class T>
struct RmsPropStep {
  T alpha, rest, epsilon, momentum, rate, factor, decay;

  BELFRY_HD static RmsPropStep of(const RmsPropUpdateOptions& o, T rate, T factor) {
    return {static_cast<T>(o.alpha),
            static_cast<T>(1 - o.alpha),
            static_cast<T>(o.epsilon),
            static_cast<T>(o.momentum),
            rate,
            factor,
            static_cast<T>(o.weight_decay)};
  }

  BELFRY_HD void operator()(T scaled, T& x, T& square, T& sum) const {
    const T gradient = decayed(factor * scaled, decay, x);
    square = alpha * square + rest * (gradient * gradient);
    sum = momentum * sum + gradient / (math::sqrt(square) + epsilon);
    x = x - rate * sum;
  }
};

// base^n for n >= 0, by squaring: the same bits everywhere, unlike the C library's pow. Its
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
  T keep;  // the share of the variable that weight decay leaves

  // `step` is at least 1.
  BELFRY_HD static AdamStep at(const AdamUpdateOptions& o, std::int64_t step, T rate, T factor) {
    const double root = math::sqrt(1 - power(o.beta2, step));
    const double correction = root / (1 - power(o.beta1, step));
    const double epsilon = o.form == AdamEpsilon::kToCorrectedRoot ? o.epsilon * root : o.epsilon;
    return {static_cast<T>(o.beta1),
            static_cast<T>(1 - o.beta1),
            static_cast<T>(o.beta2),
            static_cast<T>(1 - o.beta2),
            static_cast<T>(epsilon),
            static_cast<T>(static_cast<double>(rate) * correction),
            factor,
            static_cast<T>(1 - static_cast<double>(rate) * o.weight_decay)};
  }

  BELFRY_HD void operator()(T scaled, T& x, T& m, T& v) const {
    const T gradient = factor * scaled;
    m = beta1 * m + rest1 * gradient;
    v = beta2 * v + rest2 * (gradient * gradient);
    x = keep * x - rate * m / (math::sqrt(v) + epsilon);
  }
};

}  // namespace belfry::kernels
