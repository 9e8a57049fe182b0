// exp, log, tanh, sigmoid, erf and sqrt for f32 and f64, the same code on hosts and GPUs. It has no
// branches, tables or library calls, so that loops over it vectorise, and no fma, so that every
// instruction set of a host gives the same bits. For sin and cos see trig.h.
//
// Errors against exact values: below 1.5 ulp (sigmoid: 2.5), found over all 2^32 inputs in f32 and
// over 20 million in f64. NaN in gives NaN out. Infinities, signed zeros, subnormal inputs and
// results are as in C. A comment like "log: 2^-36" is the relative error of the function due to its
// minimax polynomial.
#pragma once
#include <cstdint>

#include "belfry/framework/kernels/simd.h"

namespace belfry::math {

// A binary floating-point format. Adding kRound to a value below 2^(kMantissaBits - 2) rounds it to
// an integer, which the low bits of the sum then hold.
template <class T>
struct Format;
template <>
struct Format<float> {
  using Bits = std::uint32_t;
  static constexpr int kMantissaBits = 23;
  static constexpr Bits kBias = 127;
  static constexpr float kRound = 0x1.8p23f;
  static constexpr float kInfinity = __builtin_inff();
  static constexpr float kNan = __builtin_nanf("");
};
template <>
struct Format<double> {
  using Bits = std::uint64_t;
  static constexpr int kMantissaBits = 52;
  static constexpr Bits kBias = 1023;
  static constexpr double kRound = 0x1.8p52;
  static constexpr double kInfinity = __builtin_inf();
  static constexpr double kNan = __builtin_nan("");
};

template <class T>
using BitsOf = typename Format<T>::Bits;

template <class T>
BELFRY_HD constexpr BitsOf<T> to_bits(T x) {
  return __builtin_bit_cast(BitsOf<T>, x);
}
template <class T>
BELFRY_HD constexpr T from_bits(BitsOf<T> bits) {
  return __builtin_bit_cast(T, bits);
}

template <class T>
inline constexpr BitsOf<T> kSignBit = BitsOf<T>{1} << (sizeof(T) * 8 - 1);

template <class T>
BELFRY_HD T abs(T x) {
  return from_bits<T>(to_bits(x) & ~kSignBit<T>);
}
// The absolute value of `x` with the sign of `sign`.
template <class T>
BELFRY_HD T copysign(T x, T sign) {
  return from_bits<T>((to_bits(x) & ~kSignBit<T>) | (to_bits(sign) & kSignBit<T>));
}
// `x`, but at most `limit`; NaN stays NaN.
template <class T>
BELFRY_HD T at_most(T x, T limit) {
  return x > limit ? limit : x;
}
template <class T>
BELFRY_HD T at_least(T x, T limit) {
  return x < limit ? limit : x;
}

// c0 + c2 z + c4 z^2 + ... for coefficients c0, c1, c2, ...
template <class T>
BELFRY_HD T every_other(T, T c0) {
  return c0;
}
template <class T>
BELFRY_HD T every_other(T, T c0, T) {
  return c0;
}
template <class T, class... Rest>
BELFRY_HD T every_other(T z, T c0, T, Rest... rest) {
  return c0 + z * every_other(z, rest...);
}
// c0 + c1 x + c2 x^2 + ..., in two chains, as a single one is bound by latency.
template <class T, class... Rest>
BELFRY_HD T polynomial(T x, T c0, Rest... rest) {
  return every_other(x * x, c0, rest...) + x * every_other(x * x, rest...);
}

BELFRY_HD float sqrt(float x) {
#if defined(__CUDA_ARCH__)
  return ::sqrtf(x);
#else
  return __builtin_sqrtf(x);
#endif
}
BELFRY_HD double sqrt(double x) {
#if defined(__CUDA_ARCH__)
  return ::sqrt(x);
#else
  return __builtin_sqrt(x);
#endif
}

// ---- exp -------------------------------------------------------------------------------------

// (e^r - 1 - r) / r^2 for |r| <= ln 2 / 2.
BELFRY_HD float exp_tail(float r) {  // e^r: 2^-34
  return polynomial(r, 0x1p-1f, 0x1.555556p-3f, 0x1.555478p-5f, 0x1.111078p-7f, 0x1.6d9e28p-10f,
                    0x1.a1c036p-13f);
}
BELFRY_HD double exp_tail(double r) {  // e^r: 2^-64
  return polynomial(r, 0x1p-1, 0x1.555555555555cp-3, 0x1.555555555555ep-5, 0x1.111111110e8a2p-7,
                    0x1.6c16c16c130edp-10, 0x1.a01a01b4ed458p-13, 0x1.a01a01b59964dp-16,
                    0x1.71ddec920bfe9p-19, 0x1.27e4bcb58b829p-22, 0x1.af721184b57a2p-26,
                    0x1.1fa1854263f0ep-29);
}

// x - n * ln 2. The high part of ln 2 is short enough for an exact product.
BELFRY_HD float minus_ln2(float x, float n) { return (x - n * 0x1.62e4p-1f) - n * 0x1.7f7d1cp-20f; }
BELFRY_HD double minus_ln2(double x, double n) {
  return (x - n * 0x1.62e42fefa38p-1) - n * 0x1.ef35793c76730p-45;
}

// e^x = fraction * 2^exponent with a fraction near 1, the exponent modulo 2^32 or 2^64.
template <class T>
struct ScaledExp {
  T fraction;
  BitsOf<T> exponent;
};
template <class T>
BELFRY_HD ScaledExp<T> scaled_exp(T x) {
  using F = Format<T>;
  const T shifted = x * T(0x1.71547652b82fep+0) + F::kRound;
  const T r = minus_ln2(x, shifted - F::kRound);
  return {T(1) + (r + r * r * exp_tail(r)), to_bits(shifted) - to_bits(F::kRound)};
}

// 2^exponent, for a normal result.
template <class T>
BELFRY_HD T power_of_two(BitsOf<T> exponent) {
  return from_bits<T>((exponent + Format<T>::kBias) << Format<T>::kMantissaBits);
}

// e^x if it is a normal number.
template <class T>
BELFRY_HD T exp_normal(T x) {
  const ScaledExp<T> e = scaled_exp(x);
  return e.fraction * power_of_two<T>(e.exponent);
}

template <class T>
BELFRY_HD T exp(T x) {
  // Beyond the limits the result is inf or 0 anyway.
  constexpr bool kSingle = sizeof(T) == sizeof(float);
  const ScaledExp<T> e =
      scaled_exp(at_least(at_most(x, kSingle ? T(89) : T(710)), kSingle ? T(-104) : T(-746)));
  // Two factors, since 2^exponent may be no normal number; only the last product rounds. The offset
  // makes a logical shift halve: 64-bit arithmetic shifts are missing in AVX2.
  constexpr BitsOf<T> kOffset = 4096;
  const BitsOf<T> half = ((e.exponent + kOffset) >> 1) - kOffset / 2;
  return e.fraction * power_of_two<T>(half) * power_of_two<T>(e.exponent - half);
}

// ---- log -------------------------------------------------------------------------------------

// (log((1 + s) / (1 - s)) - 2 s) / s^3 as a function of z = s^2, |s| <= 0.172.
BELFRY_HD float log_tail(float z) {  // log: 2^-36
  return polynomial(z, 0x1.555554p-1f, 0x1.999a88p-2f, 0x1.243520p-2f, 0x1.e38b32p-3f);
}
BELFRY_HD double log_tail(double z) {  // log: 2^-58
  return polynomial(z, 0x1.555555555559cp-1, 0x1.999999997c8b4p-2, 0x1.2492494511fb1p-2,
                    0x1.c71c4f5908a25p-3, 0x1.7466d33e06adfp-3, 0x1.39921cd073a92p-3,
                    0x1.2fa900fdefd00p-3);
}

// n * ln 2 + (f + y) for |f| much larger than |y|.
BELFRY_HD float plus_ln2(float n, float f, float y) {
  return n * 0x1.62e4p-1f + ((n * 0x1.7f7d1cp-20f + y) + f);
}
BELFRY_HD double plus_ln2(double n, double f, double y) {
  return n * 0x1.62e42fefa38p-1 + ((n * 0x1.ef35793c76730p-45 + y) + f);
}

// After FreeBSD's e_log.c: x = 2^n (1 + f), sqrt(1/2) <= 1 + f < sqrt(2), s = f / (2 + f), and
// log(1 + f) = f - f^2/2 + s (f^2/2 + log_tail).
template <class T>
BELFRY_HD T log(T x) {
  using F = Format<T>;
  constexpr BitsOf<T> kOne = F::kBias << F::kMantissaBits;
  constexpr BitsOf<T> kSqrtHalf = to_bits(T(0x1.6a09e667f3bcdp-1));
  constexpr BitsOf<T> kMantissa = (BitsOf<T>{1} << F::kMantissaBits) - 1;
  constexpr T kTwoM = T(BitsOf<T>{1} << F::kMantissaBits);

  const bool subnormal = x < from_bits<T>(kMantissa + 1);
  const T scaled = subnormal ? x * kTwoM : x;
  const BitsOf<T> shifted = to_bits(scaled) + (kOne - kSqrtHalf);
  // The biased exponent, put in the mantissa of 2^kMantissaBits: 64-bit integers have no vector
  // conversion in AVX2.
  const T biased = from_bits<T>((shifted >> F::kMantissaBits) | to_bits(kTwoM)) - kTwoM;
  const T n = biased - (subnormal ? T(F::kBias + F::kMantissaBits) : T(F::kBias));
  const T f = from_bits<T>((shifted & kMantissa) + kSqrtHalf) - T(1);

  const T s = f / (T(2) + f);
  const T z = s * s;
  const T half_square = T(0.5) * f * f;
  T y = plus_ln2(n, f, s * (half_square + z * log_tail(z)) - half_square);

  y = x == F::kInfinity ? x : y;
  y = x == T(0) ? -F::kInfinity : y;
  return x >= T(0) ? y : F::kNan;
}

// ---- tanh, sigmoid ---------------------------------------------------------------------------

// (tanh(x) / x - 1) / z with z = x^2, |x| <= 0.625 in f32 and 0.56 in f64.
BELFRY_HD float tanh_tail(float z) {  // tanh: 2^-33
  return polynomial(z, -0x1.555554p-2f, 0x1.11106cp-3f, -0x1.b9ef7cp-5f, 0x1.6394d4p-6f,
                    -0x1.0c212ap-7f, 0x1.197b1cp-9f);
}
BELFRY_HD double tanh_tail(double z) {  // tanh: 2^-60
  return polynomial(z, -0x1.555555555554dp-2, 0x1.1111111110449p-3, -0x1.ba1ba1b94c10ap-5,
                    0x1.664f484e28b26p-6, -0x1.226e2d9c2e8b6p-7, 0x1.d6d25f3ae9a31p-9,
                    -0x1.7d8cbed58fd0bp-10, 0x1.3469fbde5e63cp-11, -0x1.e867050479e60p-13,
                    0x1.5a74f6466a30dp-14, -0x1.3f96f8db43d7cp-16);
}

template <class T>
BELFRY_HD T tanh(T x) {
  constexpr bool kSingle = sizeof(T) == sizeof(float);
  const T size = at_most(abs(x), kSingle ? T(10) : T(20));
  const T z = size * size;
  const T near = size + size * (z * tanh_tail(z));
  const T far = T(1) - T(2) / (exp_normal(size + size) + T(1));
  return copysign(size < (kSingle ? T(0.625) : T(0.56)) ? near : far, x);
}

// 1 / (1 + e^-x), accurate down to subnormal results.
template <class T>
BELFRY_HD T sigmoid(T x) {
  const T e = exp(-abs(x));
  return (x < T(0) ? e : T(1)) / (T(1) + e);
}

// ---- erf -------------------------------------------------------------------------------------

// erf(x) / x - 1 as a function of z = x^2 <= 1.
BELFRY_HD float erf_near(float z) {  // erf: 2^-30
  return polynomial(z, 0x1.06eba8p-3f, -0x1.81273ep-2f, 0x1.ce2d00p-4f, -0x1.b7f97ep-6f,
                    0x1.540898p-8f, -0x1.a4095cp-11f, 0x1.499702p-14f);
}
BELFRY_HD double erf_near(double z) {  // erf: 2^-63
  return polynomial(z, 0x1.06eba8214db69p-3, -0x1.812746b0379e6p-2, 0x1.ce2f21a042b24p-4,
                    -0x1.b82ce31284a6bp-6, 0x1.565bcd0db1c7bp-8, -0x1.c02db3d92be17p-11,
                    0x1.f9a321a766c35p-14, -0x1.f4d1dfa5b111ap-17, 0x1.b9def690c0d82p-20,
                    -0x1.5f1d5d693cba9p-23, 0x1.f7a594a6cedf3p-27, -0x1.386f1ee21932ap-30,
                    0x1.0584ca3a0195ap-34);
}

// log(1 - erf(x)) for 1 <= x <= 3.95 (f32) or 5.95 (f64).
BELFRY_HD float log_erfc(float x) {  // erf: 2^-36
  return -polynomial(x, -0x1.8a558cp-13f, 0x1.212c0cp+0f, 0x1.443568p-1f, 0x1.bc150ep-4f,
                     -0x1.9d02f0p-6f, 0x1.138ca0p-8f, -0x1.cec5aap-12f, 0x1.6bd774p-16f);
}
BELFRY_HD double log_erfc(double x) {  // erf: 2^-59
  return -polynomial(
      x, 0x1.6b550378cd85cp-23, 0x1.20dd57e1232acp+0, 0x1.45f41c0010ae9p-1, 0x1.a4dba50217658p-4,
      -0x1.389e01c355b1dp-6, -0x1.2262c06fdc249p-12, 0x1.ceb70919a79dap-10, -0x1.4e6c78789eb76p-11,
      0x1.6545eca94f943p-15, 0x1.2c2baae707dc4p-14, -0x1.7e1ee107f384dp-15, 0x1.18035f264a27cp-16,
      -0x1.2594c477e5af7p-18, 0x1.ce0cb967407bbp-21, -0x1.116df0fc3b454p-23, 0x1.dad06f45ef8bfp-27,
      -0x1.1e4994ed02b79p-30, 0x1.acf05d234ad85p-35, -0x1.2ccea8e13d201p-40);
}

template <class T>
BELFRY_HD T erf(T x) {
  constexpr bool kSingle = sizeof(T) == sizeof(float);
  const T size = at_most(abs(x), kSingle ? T(3.95) : T(5.95));
  const T near = size + size * erf_near(size * size);
  const T far = T(1) - exp_normal(log_erfc(size));
  return copysign(size < T(1) ? near : far, x);
}

}  // namespace belfry::math
