// The functions of math.h and trig.h against long double libm, and against themselves on other
// instruction sets and at other places of a loop.
#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>
#include <random>
#include <vector>

#include <gtest/gtest.h>

#include "belfry/framework/kernels/math.h"
#include "belfry/framework/kernels/pointwise.h"
#include "belfry/framework/kernels/trig.h"

namespace belfry {
namespace kernels_math_test {

using Exact = long double (*)(long double);

// A function under test: ours for T, the exact one, the largest error in ulp and the largest |x|.
#define BELFRY_FUNCTION(Name, function, exact_function, f32_ulp, f64_ulp, f32_limit, f64_limit) \
  struct Name {                                                                                 \
    template <class T>                                                                          \
    BELFRY_HD T operator()(T x) const {                                                         \
      return math::function(x);                                                                 \
    }                                                                                           \
    static constexpr Exact kExact = exact_function;                                             \
    template <class T>                                                                          \
    static constexpr double kUlp = sizeof(T) == 4 ? f32_ulp : f64_ulp;                          \
    template <class T>                                                                          \
    static constexpr T kLimit = static_cast<T>(sizeof(T) == 4 ? f32_limit : f64_limit);         \
  }

constexpr double kAll = std::numeric_limits<double>::infinity();

long double exact_sigmoid(long double x) { return 1 / (1 + std::exp(-x)); }

BELFRY_FUNCTION(Exp, exp, std::exp, 1.5, 1.5, kAll, kAll);
BELFRY_FUNCTION(Log, log, std::log, 1.5, 1.5, kAll, kAll);
BELFRY_FUNCTION(Tanh, tanh, std::tanh, 2, 2, kAll, kAll);
BELFRY_FUNCTION(Erf, erf, std::erf, 2, 2, kAll, kAll);
BELFRY_FUNCTION(Sigmoid, sigmoid, exact_sigmoid, 2.5, 2.5, kAll, kAll);
BELFRY_FUNCTION(Sqrt, sqrt, std::sqrt, 0.5001, 0.5001, kAll, kAll);
BELFRY_FUNCTION(Sin, sin, std::sin, 2, 2, 1e6, 1e6);
BELFRY_FUNCTION(Cos, cos, std::cos, 2, 2, 1e6, 1e6);
#undef BELFRY_FUNCTION

// |got - exact| in units of the last place of T at `exact`; 0 where both are the same special
// value.
template <class T>
double ulps(T got, long double exact) {
  const T rounded = static_cast<T>(exact);
  if (std::isnan(exact)) return std::isnan(got) ? 0 : kAll;
  if (std::isinf(rounded) || std::isinf(got)) return got == rounded ? 0 : kAll;
  if (exact == 0) return got == 0 && std::signbit(got) == std::signbit(exact) ? 0 : kAll;
  const int exponent = std::max(std::ilogb(exact), std::numeric_limits<T>::min_exponent - 1);
  const long double unit = std::scalbn(1.0L, exponent - std::numeric_limits<T>::digits + 1);
  return std::isnan(got) ? kAll : static_cast<double>(std::abs(got - exact) / unit);
}

// Special values, both sides of the limits of exp, all binades, and the ranges that networks use.
template <class T>
std::vector<T> samples(T limit) {
  using L = std::numeric_limits<T>;
  std::vector<T> x = {T(0),
                      T(-0.0),
                      L::infinity(),
                      -L::infinity(),
                      L::quiet_NaN(),
                      L::denorm_min(),
                      -L::denorm_min(),
                      L::min(),
                      -L::min(),
                      L::max(),
                      L::lowest(),
                      T(1),
                      T(-1),
                      std::nextafter(T(1), T(0)),
                      std::log(L::max()),
                      std::nextafter(std::log(L::max()), L::max()),
                      std::log(L::min()),
                      std::log(L::denorm_min()),
                      std::log(L::denorm_min()) - 1};
  std::mt19937_64 random(1);
  for (int i = 0; i < 60'000; ++i) {
    x.push_back(math::from_bits<T>(static_cast<math::BitsOf<T>>(random())));
    for (const double width : {1.0, 10.0, 1000.0, 1e6}) {
      x.push_back(static_cast<T>((std::generate_canonical<double, 53>(random) * 2 - 1) * width));
    }
  }
  std::erase_if(x, [&](T v) { return std::isfinite(v) && std::abs(v) > limit; });
  return x;
}

template <class F, class T>
void expect_accurate() {
  for (const T x : samples<T>(F::template kLimit<T>)) {
    const T y = F{}(x);
    ASSERT_LE(ulps(y, F::kExact(x)), F::template kUlp<T>) << "x = " << x << ", y = " << y;
  }
}

// Loops over the same functor for single instruction sets.
template <class F, class T>
void apply_on_baseline(const T* x, T* y, std::int64_t n) {
  for (std::int64_t i = 0; i < n; ++i) y[i] = F{}(x[i]);
}
#if defined(__x86_64__) && !defined(__clang__)
#define BELFRY_AVX2 [[gnu::target("arch=x86-64-v3")]]
bool has_avx2() { return __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma"); }
#else
#define BELFRY_AVX2
bool has_avx2() { return true; }
#endif
template <class F, class T>
BELFRY_AVX2 void apply_on_avx2(const T* x, T* y, std::int64_t n) {
  for (std::int64_t i = 0; i < n; ++i) y[i] = F{}(x[i]);
}

template <class T>
void expect_same_bits(const std::vector<T>& a, const std::vector<T>& b) {
  ASSERT_EQ(a.size(), b.size());
  if (std::memcmp(a.data(), b.data(), a.size() * sizeof(T)) == 0) return;
  for (std::size_t i = 0; i < a.size(); ++i) {
    ASSERT_TRUE(math::to_bits(a[i]) == math::to_bits(b[i]) ||
                (std::isnan(a[i]) && std::isnan(b[i])))
        << "element " << i << ": " << a[i] << " and " << b[i];
  }
}

template <class F, class T>
void expect_same_bits_everywhere() {
  const std::vector<T> x = samples<T>(std::numeric_limits<T>::infinity());
  const auto n = static_cast<std::int64_t>(x.size());
  std::vector<T> dispatched(x.size());
  std::vector<T> other(x.size());
  kernels::map(F{}, 0, n, dispatched.data(), x.data());

  apply_on_baseline<F>(x.data(), other.data(), n);
  expect_same_bits(dispatched, other);
  if (has_avx2()) {
    apply_on_avx2<F>(x.data(), other.data(), n);
    expect_same_bits(dispatched, other);
  }
  for (std::int64_t shift = 1; shift < 32; ++shift) {
    std::fill(other.begin(), other.end(), T(0));
    kernels::map(F{}, 0, shift, other.data(), x.data());
    kernels::map(F{}, shift, n - shift, other.data(), x.data());
    kernels::map(F{}, n - shift, n, other.data(), x.data());
    expect_same_bits(dispatched, other);
  }
}

template <class F>
class MathFunction : public testing::Test {};
using Functions = testing::Types<Exp, Log, Tanh, Erf, Sigmoid, Sqrt, Sin, Cos>;
TYPED_TEST_SUITE(MathFunction, Functions);

TYPED_TEST(MathFunction, IsAccurateInF32) { expect_accurate<TypeParam, float>(); }
TYPED_TEST(MathFunction, IsAccurateInF64) { expect_accurate<TypeParam, double>(); }
TYPED_TEST(MathFunction, GivesTheSameBitsOnEveryInstructionSetAndAtEveryPlaceInF32) {
  expect_same_bits_everywhere<TypeParam, float>();
}
TYPED_TEST(MathFunction, GivesTheSameBitsOnEveryInstructionSetAndAtEveryPlaceInF64) {
  expect_same_bits_everywhere<TypeParam, double>();
}

TEST(Math, KeepsTheLimitsOfExpAndLog) {
  constexpr float kInfinity = std::numeric_limits<float>::infinity();
  EXPECT_EQ(math::exp(0.0f), 1.0f);
  EXPECT_EQ(math::exp(88.8f), kInfinity);
  EXPECT_EQ(math::exp(-kInfinity), 0.0f);
  EXPECT_EQ(math::exp(-103.0f), std::numeric_limits<float>::denorm_min());
  EXPECT_EQ(math::log(1.0f), 0.0f);
  EXPECT_EQ(math::log(0.0f), -kInfinity);
  EXPECT_EQ(math::log(-0.0f), -kInfinity);
  EXPECT_TRUE(std::isnan(math::log(-1.0f)));
  EXPECT_EQ(math::log(kInfinity), kInfinity);
  EXPECT_EQ(math::sigmoid(-kInfinity), 0.0f);
  EXPECT_EQ(math::erf(kInfinity), 1.0f);
  EXPECT_EQ(math::tanh(-kInfinity), -1.0f);
}

TEST(Math, BoundsSineAndCosineOfHugeAngles) {
  for (const double x : {1e7, 1e12, 1e18, 1e100, 1e308, -1e300}) {
    EXPECT_LE(std::abs(math::sin(x)), 1.0);
    EXPECT_LE(std::abs(math::cos(x)), 1.0);
    if (std::abs(x) > 1e38) continue;
    EXPECT_LE(std::abs(math::sin(static_cast<float>(x))), 1.0f);
    EXPECT_LE(std::abs(math::cos(static_cast<float>(x))), 1.0f);
  }
}

}  // namespace kernels_math_test
}  // namespace belfry
