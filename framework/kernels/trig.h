// sin and cos for f32 and f64, written as math.h is: no branches, no fma, the same bits on every
// instruction set of a host.
//
// Errors below 1.6 ulp for |x| <= 1e6. Beyond, the reduced angle loses accuracy with the size of x;
// the result stays in [-1, 1]. Infinities and NaN give NaN; sin(-0) is -0.
#pragma once
#include "belfry/framework/kernels/math.h"

namespace belfry::math {

// x = (4 m + quadrant) pi/2 + angle, |angle| <= pi/4; of `quadrant` only the low two bits count.
template <class T>
struct ReducedAngle {
  T angle;
  BitsOf<T> quadrant;
};

// f32 is reduced in f64: the sum of three f32 products would cost as much and be less accurate.
BELFRY_HD ReducedAngle<float> reduce_angle(float x) {
  constexpr double kRound = Format<double>::kRound;
  const double n = (x * 0x1.45f306dc9c883p-1 + kRound) - kRound;
  const float angle = static_cast<float>((x - n * 0x1.921fb544p+0) - n * 0x1.0b4611a626331p-34);
  return {angle, to_bits(static_cast<float>(n) + Format<float>::kRound)};
}

// Returns a - b. `error` gets the part that rounding took from it (Knuth's two-sum).
BELFRY_HD double subtract(double a, double b, double& error) {
  const double difference = a - b;
  const double lost = difference - a;
  error = (a - (difference - lost)) - (b + lost);
  return difference;
}

// pi/2 is in four parts. The first three have 33 bits, so their products with n are exact.
BELFRY_HD ReducedAngle<double> reduce_angle(double x) {
  const double shifted = x * 0x1.45f306dc9c883p-1 + Format<double>::kRound;
  const double n = shifted - Format<double>::kRound;
  double error2;
  double error3;
  double angle = x - n * 0x1.921fb544p+0;
  angle = subtract(angle, n * 0x1.0b4611a6p-34, error2);
  angle = subtract(angle, n * 0x1.3198a2ep-69, error3);
  // Written with a last minus, which keeps -0.
  return {angle - (n * 0x1.b839a252049c1p-104 - (error2 + error3)), to_bits(shifted)};
}

// (sin(r) / r - 1) / z and (cos(r) - 1 + z/2) / z^2 with z = r^2, |r| <= pi/4.
BELFRY_HD float sin_tail(float z) {  // sin: 2^-38
  return polynomial(z, -0x1.555556p-3f, 0x1.111108p-7f, -0x1.a00f68p-13f, 0x1.6ccbaep-19f);
}
BELFRY_HD double sin_tail(double z) {  // sin: 2^-58
  return polynomial(z, -0x1.5555555555548p-3, 0x1.111111110f740p-7, -0x1.a01a019be8851p-13,
                    0x1.71de3552bd3d6p-19, -0x1.ae5e48515da2cp-26, 0x1.5d8a13a803042p-33);
}
BELFRY_HD float cos_tail(float z) {  // cos: 2^-33
  return polynomial(z, 0x1.55554ap-5f, -0x1.6c0c58p-10f, 0x1.99f2d4p-16f);
}
BELFRY_HD double cos_tail(double z) {  // cos: 2^-64
  return polynomial(z, 0x1.555555555554bp-5, -0x1.6c16c16c15029p-10, 0x1.a01a019c8f09ep-16,
                    -0x1.27e4f7efe4cc8p-22, 0x1.1ee9d9979a08ep-29, -0x1.8fa4d485fe65ep-37);
}

// sin(quadrant * pi/2 + angle).
template <class T>
BELFRY_HD T sin_of(T angle, BitsOf<T> quadrant) {
  const T r = at_least(at_most(angle, T(0.8)), T(-0.8));  // bounds the result for huge x
  const T z = r * r;
  const T sine = copysign(r + r * (z * sin_tail(z)), r);  // keeps -0
  const T cosine = T(1) - z * (T(0.5) - z * cos_tail(z));
  // Selected by a mask: the baseline has no comparison of 64-bit integers.
  const BitsOf<T> use_cosine = -(quadrant & 1);
  const BitsOf<T> y = (to_bits(cosine) & use_cosine) | (to_bits(sine) & ~use_cosine);
  return from_bits<T>(y ^ ((quadrant & 2) << (sizeof(T) * 8 - 2)));
}

template <class T>
BELFRY_HD T sin(T x) {
  const ReducedAngle<T> a = reduce_angle(x);
  return sin_of(a.angle, a.quadrant);
}

template <class T>
BELFRY_HD T cos(T x) {
  const ReducedAngle<T> a = reduce_angle(x);
  return sin_of(a.angle, a.quadrant + 1);
}

}  // namespace belfry::math
