// One optimizer step on one element of a variable, its slots and gradient; for hosts and GPUs.
#pragma once
#include <cstdint>

#include "belfry/framework/kernels/math.h"
#include "belfry/ops/updates/adagrad_update.h"
#include "belfry/ops/updates/adam_update.h"
#include "belfry/ops/updates/ams_grad_update.h"
#include "belfry/ops/updates/lars_update.h"
#include "belfry/ops/updates/lion_update.h"
#include "belfry/ops/updates/momentum_update.h"
#include "belfry/ops/updates/rms_prop_update.h"
#include "belfry/ops/updates/sgd_update.h"

namespace belfry::kernels {

// A gradient with weight decay. If decay is 0, even infinite weights or signs of zeros have no
// effect.
template <class T>
BELFRY_HD T decayed(T gradient, T decay, T x) {
  const T sum = gradient + decay * x;
  return decay == T(0) ? gradient : sum;
}

// The share of a variable that decoupled weight decay leaves; exactly 1 without decay.
template <class T>
BELFRY_HD T kept_share(T rate, double decay) {
  return static_cast<T>(1 - static_cast<double>(rate) * decay);
}

template <class T>
struct SgdStep {
  T rate, factor;  // the gradient's
  T decay, keep;

  BELFRY_HD static SgdStep of(const SgdUpdateOptions& o, T rate, T factor) {
    return {rate, factor, static_cast<T>(o.weight_decay), kept_share(rate, o.decoupled_decay)};
  }

  BELFRY_HD void operator()(T gradient, T& x) const {
    x = keep * x - rate * decayed(factor * gradient, decay, x);
  }
};

template <class T>
struct MomentumStep {
  T momentum, rate, factor, decay, keep;
  bool nesterov;

  BELFRY_HD static MomentumStep of(const MomentumUpdateOptions& o, T rate, T factor) {
    return {static_cast<T>(o.momentum),
            rate,
            factor,
            static_cast<T>(o.weight_decay),
            kept_share(rate, o.decoupled_decay),
            o.form == MomentumForm::kNesterov};
  }

  BELFRY_HD void operator()(T scaled, T& x, T& sum) const {
    const T gradient = decayed(factor * scaled, decay, x);
    sum = momentum * sum + gradient;
    const T ahead = gradient + momentum * sum;
    x = keep * x - rate * (nesterov ? ahead : sum);
  }
};

template <class T>
struct LarsStep {
  T momentum, rate, factor, decay, ratio;
  bool nesterov;

  // Norms of the variable and of the gradient before `factor`, which is not negative.
  BELFRY_HD static LarsStep of(const LarsUpdateOptions& o, double variable, double gradient, T rate,
                               T factor) {
    const double scaled = gradient * static_cast<double>(factor);
    const double ratio =
        o.coefficient * variable / (scaled + o.weight_decay * variable + o.epsilon);
    const bool unscaled = variable == 0 || scaled == 0;
    return {static_cast<T>(o.momentum),
            rate,
            factor,
            static_cast<T>(o.weight_decay),
            static_cast<T>(unscaled ? 1 : ratio),
            o.form == MomentumForm::kNesterov};
  }

  BELFRY_HD void operator()(T scaled, T& x, T& sum) const {
    const T gradient = ratio * decayed(factor * scaled, decay, x);
    sum = momentum * sum + gradient;
    const T ahead = gradient + momentum * sum;
    x = x - rate * (nesterov ? ahead : sum);
  }
};

template <class T>
struct LionStep {
  T beta1, rest1, beta2, rest2, rate, factor, decay, keep;

  BELFRY_HD static LionStep of(const LionUpdateOptions& o, T rate, T factor) {
    return {static_cast<T>(o.beta1),
            static_cast<T>(1 - o.beta1),
            static_cast<T>(o.beta2),
            static_cast<T>(1 - o.beta2),
            rate,
            factor,
            static_cast<T>(o.coupled_decay),
            kept_share(rate, o.weight_decay)};
  }

  BELFRY_HD void operator()(T scaled, T& x, T& m) const {
    const T gradient = decayed(factor * scaled, decay, x);
    const T ahead = beta1 * m + rest1 * gradient;
    // 0 and NaN stay.
    const T sign = ahead > T(0) ? T(1) : ahead < T(0) ? T(-1) : ahead;
    m = beta2 * m + rest2 * gradient;
    x = keep * x - rate * sign;
  }
};

template <class T>
struct AdagradStep {
  T epsilon, rate, factor, decay, keep;

  BELFRY_HD static AdagradStep of(const AdagradUpdateOptions& o, T rate, T factor) {
    return {static_cast<T>(o.epsilon), rate, factor, static_cast<T>(o.weight_decay),
            kept_share(rate, o.decoupled_decay)};
  }

  BELFRY_HD void operator()(T scaled, T& x, T& square) const {
    const T gradient = decayed(factor * scaled, decay, x);
    square = square + gradient * gradient;
    x = keep * x - rate * gradient / (math::sqrt(square) + epsilon);
  }
};

template <class T>
struct RmsPropStep {
  T alpha, rest, epsilon, momentum, rate, factor, decay, keep;

  BELFRY_HD static RmsPropStep of(const RmsPropUpdateOptions& o, T rate, T factor) {
    return {static_cast<T>(o.alpha),
            static_cast<T>(1 - o.alpha),
            static_cast<T>(o.epsilon),
            static_cast<T>(o.momentum),
            rate,
            factor,
            static_cast<T>(o.weight_decay),
            kept_share(rate, o.decoupled_decay)};
  }

  BELFRY_HD void operator()(T scaled, T& x, T& square, T& sum) const {
    const T gradient = decayed(factor * scaled, decay, x);
    square = alpha * square + rest * (gradient * gradient);
    sum = momentum * sum + gradient / (math::sqrt(square) + epsilon);
    x = keep * x - rate * sum;
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
  T beta1, rest1, beta2, rest2, epsilon, rate, factor, decay;
  T keep;  // the share of the variable that decoupled weight decay leaves

  // Of AdamUpdateOptions or AmsGradUpdateOptions; epsilon is corrected, or not. `step` is at least
  // 1.
  template <class Options>
  BELFRY_HD static AdamStep with(const Options& o, bool corrected, double coupled, double decoupled,
                                 std::int64_t step, T rate, T factor) {
    const double root = math::sqrt(1 - power(o.beta2, step));
    const double correction = root / (1 - power(o.beta1, step));
    return {static_cast<T>(o.beta1),
            static_cast<T>(1 - o.beta1),
            static_cast<T>(o.beta2),
            static_cast<T>(1 - o.beta2),
            static_cast<T>(corrected ? o.epsilon * root : o.epsilon),
            static_cast<T>(static_cast<double>(rate) * correction),
            factor,
            static_cast<T>(coupled),
            kept_share(rate, decoupled)};
  }

  BELFRY_HD static AdamStep at(const AdamUpdateOptions& o, std::int64_t step, T rate, T factor) {
    const double decay = o.weight_decay.share;
    const bool coupled = o.weight_decay.coupled;
    return with(o, o.form == AdamEpsilon::kToCorrectedRoot, coupled ? decay : 0,
                coupled ? 0 : decay, step, rate, factor);
  }

  BELFRY_HD void move(T scaled, T x, T& m, T& v) const {
    const T gradient = decayed(factor * scaled, decay, x);
    m = beta1 * m + rest1 * gradient;
    v = beta2 * v + rest2 * (gradient * gradient);
  }

  BELFRY_HD void operator()(T scaled, T& x, T& m, T& v) const {
    move(scaled, x, m, v);
    x = keep * x - rate * m / (math::sqrt(v) + epsilon);
  }
};

template <class T>
struct AmsGradStep {
  AdamStep<T> adam;

  BELFRY_HD static AmsGradStep at(const AmsGradUpdateOptions& o, std::int64_t step, T rate,
                                  T factor) {
    return {AdamStep<T>::with(o, true, o.weight_decay, o.decoupled_decay, step, rate, factor)};
  }

  BELFRY_HD void operator()(T scaled, T& x, T& m, T& v, T& most) const {
    adam.move(scaled, x, m, v);
    most = most >= v ? most : v;  // v if that is NaN
    x = adam.keep * x - adam.rate * m / (math::sqrt(most) + adam.epsilon);
  }
};

}  // namespace belfry::kernels
