// pow, expm1, log1p and rounding to integers for f32 and f64, written as math.h is: no branches, no
// fma, the same bits on every instruction set of a host.
//
// Errors against exact values: below 2.5 ulp for expm1, 2 ulp for log1p and 0.8 ulp for pow, which
// is exact where its result has an exact representation. Special values are as in C.
#pragma once
#include "belfry/framework/kernels/trig.h"

namespace belfry::math {

// ---- integers --------------------------------------------------------------------------------

// The nearest integer, the even one at ties. The sign stays, even of a zero.
template <class T>
BELFRY_HD T round(T x) {
  // From here on there are only integers.
  constexpr T kIntegers = T(BitsOf<T>{1} << Format<T>::kMantissaBits);
  const T size = abs(x);
  const T near = copysign((size + kIntegers) - kIntegers, x);
  return size < kIntegers ? near : x;
}
template <class T>
BELFRY_HD T floor(T x) {
  const T near = round(x);
  return near > x ? near - T(1) : near;
}
template <class T>
BELFRY_HD T ceil(T x) {
  const T near = round(x);
  return copysign(near < x ? near + T(1) : near, x);
}

// ---- expm1, log1p ----------------------------------------------------------------------------

// e^x - 1, accurate near 0.
template <class T>
BELFRY_HD T expm1(T x) {
  using F = Format<T>;
  constexpr bool kSingle = sizeof(T) == sizeof(float);
  // Beyond the limits the result is inf or -1 anyway.
  const T bounded = at_least(at_most(x, kSingle ? T(89) : T(710)), kSingle ? T(-20) : T(-40));
  const T shifted = bounded * T(0x1.71547652b82fep+0) + F::kRound;
  const T n = shifted - F::kRound;
  const T r = minus_ln2(bounded, n);
  const T near = r + r * r * exp_tail(r);  // e^r - 1
  // Half of 2^n, which may itself be too large.
  const T half = power_of_two<T>(to_bits(shifted) - to_bits(F::kRound) - 1);
  const T far = (near * half + (half - T(0.5))) * T(2);
  return copysign(n == T(0) ? near : far, x);
}

// log(1 + x), accurate near 0.
template <class T>
BELFRY_HD T log1p(T x) {
  const T sum = T(1) + x;
  const T lost = x > T(1) ? T(1) - (sum - x) : x - (sum - T(1));  // by rounding
  const T share = lost / sum;                                     // NaN at -1 and at infinity
  return copysign(log(sum) + (share == share ? share : T(0)), x);
}

// ---- pow -------------------------------------------------------------------------------------

// A number of twice the precision: high + low.
struct Twofold {
  double high, low;
};

// a * b exactly, for products that neither overflow nor underflow (Dekker).
BELFRY_HD Twofold product(double a, double b) {
  constexpr double kSplit = 0x1.0000002p27;
  const double as = kSplit * a;
  const double a_high = as - (as - a);
  const double a_low = a - a_high;
  const double bs = kSplit * b;
  const double b_high = bs - (bs - b);
  const double b_low = b - b_high;
  const double high = a * b;
  return {high, ((a_high * b_high - high) + a_high * b_low + a_low * b_high) + a_low * b_low};
}

// atanh(s) / s = 1 + z/3 + z^2 atanh_tail(z) with z = s^2 <= 0.0295: 2^-70.
BELFRY_HD double atanh_tail(double z) {
  return polynomial(z, 1.0 / 5, 1.0 / 7, 1.0 / 9, 1.0 / 11, 1.0 / 13, 1.0 / 15, 1.0 / 17, 1.0 / 19,
                    1.0 / 21, 1.0 / 23, 1.0 / 25, 1.0 / 27);
}

// The logarithm of a positive finite number, to 2^-65: as log(), with log(1 + f) = 2 atanh(s).
BELFRY_HD Twofold twofold_log(double x) {
  using F = Format<double>;
  constexpr BitsOf<double> kOne = F::kBias << F::kMantissaBits;
  constexpr BitsOf<double> kSqrtHalf = to_bits(0x1.6a09e667f3bcdp-1);
  constexpr BitsOf<double> kMantissa = (BitsOf<double>{1} << F::kMantissaBits) - 1;
  constexpr double kTwoM = 0x1p52;

  const bool subnormal = x < 0x1p-1022;
  const double scaled = subnormal ? x * kTwoM : x;
  const BitsOf<double> shifted = to_bits(scaled) + (kOne - kSqrtHalf);
  const double biased = from_bits<double>((shifted >> F::kMantissaBits) | to_bits(kTwoM)) - kTwoM;
  const double n = biased - (subnormal ? 1075.0 : 1023.0);
  const double f = from_bits<double>((shifted & kMantissa) + kSqrtHalf) - 1.0;

  // s + s_low = f / (2 + f)
  const double d = 2.0 + f;
  const double d_low = f - (d - 2.0);
  const double s = f / d;
  const Twofold back = product(s, d);
  const double s_low = ((f - back.high) - back.low - s * d_low) / d;

  Twofold z = product(s, s);
  z.low += 2.0 * s * s_low;
  // w + w_low = z/3 + z^2 tail
  Twofold third = product(z.high, 0x1.5555555555555p-2);
  third.low += z.high * 0x1.5555555555555p-56 + z.low * 0x1.5555555555555p-2;
  const double rest = z.high * z.high * atanh_tail(z.high);
  const double w = third.high + rest;
  const double w_low = (third.high - w) + rest + third.low;
  // 2 s (1 + w)
  Twofold more = product(s, w);
  more.low += s * w_low + s_low * w;
  const double half = s + more.high;
  const double near = half + half;
  const double near_low = 2.0 * ((s - half) + more.high + (more.low + s_low));

  const double far = n * 0x1.62e42fefa38p-1;  // exact
  const double sum = far + near;
  const double low = ((far - sum) + near) + (near_low + n * 0x1.ef35793c76730p-45);
  const double high = sum + low;
  return {high, (sum - high) + low};
}

// e^(x.high + x.low), rounded once.
BELFRY_HD double twofold_exp(Twofold x) {
  using F = Format<double>;
  // Beyond the limits the result is inf or 0 anyway.
  const double bounded = at_least(at_most(x.high, 710.0), -746.0);
  const double low = bounded == x.high ? x.low : 0.0;
  const double shifted = bounded * 0x1.71547652b82fep+0 + F::kRound;
  const double n = shifted - F::kRound;
  double r_low;
  const double r = subtract(bounded - n * 0x1.62e42fefa38p-1, n * 0x1.ef35793c76730p-45, r_low);
  r_low += low;
  const double sum = 1.0 + r;
  const double tail = r * r * exp_tail(r);
  const double fraction = sum + ((r - (sum - 1.0)) + (tail + r_low * (sum + tail)));
  // Two factors, as in exp().
  constexpr BitsOf<double> kOffset = 4096;
  const BitsOf<double> exponent = to_bits(shifted) - to_bits(F::kRound);
  const BitsOf<double> half = ((exponent + kOffset) >> 1) - kOffset / 2;
  return fraction * power_of_two<double>(half) * power_of_two<double>(exponent - half);
}

// |x|^y for x neither 0 nor infinite. f32 is computed in f64.
BELFRY_HD float power_of_size(float x, float y) {
  const double size = abs(x);
  return static_cast<float>(exp(static_cast<double>(y) * log(size)));
}
BELFRY_HD double power_of_size(double x, double y) {
  const Twofold log_x = twofold_log(abs(x));
  // Beyond the limits the result is 0, 1 or infinite anyway.
  const double power = at_least(at_most(y, 0x1p70), -0x1p70);
  Twofold exponent = product(power, log_x.high);
  exponent.low += power * log_x.low;
  return twofold_exp(exponent);
}

// x^y with the special values of C: 1 for y = 0 or x = 1, even beside NaN.
template <class T>
BELFRY_HD T pow(T x, T y) {
  constexpr T kInfinity = Format<T>::kInfinity;
  const T size = abs(x);
  T power = power_of_size(x, y);
  power = size == T(1) ? T(1) : power;
  const T at_edge = (size == T(0)) == (y > T(0)) ? T(0) : kInfinity;
  power = size == T(0) || size == kInfinity ? at_edge : power;

  const T half = y * T(0.5);
  const bool integer = round(y) == y;
  const bool odd = integer & (round(half) != half);
  const BitsOf<T> sign = odd ? to_bits(x) & kSignBit<T> : BitsOf<T>{0};
  power = from_bits<T>(to_bits(power) ^ sign);
  const bool undefined = (x < T(0)) & (size != kInfinity) & !integer;
  power = undefined ? Format<T>::kNan : power;
  power = x != x ? x : power;
  power = y != y ? y : power;
  power = x == T(1) ? T(1) : power;
  return y == T(0) ? T(1) : power;
}

}  // namespace belfry::math
