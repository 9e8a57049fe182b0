// The functions of powers.h against long double libm.
#include <algorithm>
#include <cmath>
#include <limits>
#include <random>
#include <vector>

#include <gtest/gtest.h>

#include "belfry/framework/kernels/pointwise.h"
#include "belfry/framework/kernels/powers.h"

namespace belfry {
namespace kernels_powers_test {

constexpr double kAll = std::numeric_limits<double>::infinity();

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

template <class T>
std::vector<T> special_values() {
  using L = std::numeric_limits<T>;
  std::vector<T> values = {
      T(0), L::denorm_min(), L::min(), T(0.5), 1 - L::epsilon(), T(1),          1 + L::epsilon(),
      2,    T(2.5),          3,        30,     L::max(),         L::infinity(), L::quiet_NaN()};
  for (std::size_t i = 0, n = values.size(); i < n; ++i) values.push_back(-values[i]);
  return values;
}

// Special values, all binades, and the ranges that networks use.
template <class T>
std::vector<T> samples() {
  std::vector<T> x = special_values<T>();
  std::mt19937_64 random(1);
  for (int i = 0; i < 60'000; ++i) {
    x.push_back(math::from_bits<T>(static_cast<math::BitsOf<T>>(random())));
    for (const double width : {1.0, 10.0, 1000.0})
      x.push_back(static_cast<T>((std::generate_canonical<double, 53>(random) * 2 - 1) * width));
  }
  return x;
}

struct Powers {
  template <class T>
  BELFRY_HD T operator()(T x, T y) const {
    return math::pow(x, y);
  }
};
struct OfOne {
  template <class T>
  BELFRY_HD T operator()(T x) const {
    return math::expm1(x) + math::log1p(x) + math::floor(x) + math::ceil(x) + math::round(x);
  }
};

template <class T>
class Functions : public testing::Test {};
using Types = testing::Types<float, double>;
TYPED_TEST_SUITE(Functions, Types);

TYPED_TEST(Functions, OfNumbersNearZeroAreAccurate) {
  for (const TypeParam x : samples<TypeParam>()) {
    const long double wide = x;
    ASSERT_LE(ulps(math::expm1(x), std::expm1(wide)), 2.5) << "x = " << x;
    ASSERT_LE(ulps(math::log1p(x), std::log1p(wide)), 2) << "x = " << x;
  }
}

TYPED_TEST(Functions, RoundToIntegersAsInC) {
  for (const TypeParam x : samples<TypeParam>()) {
    const long double wide = x;
    ASSERT_EQ(ulps(math::floor(x), std::floor(wide)), 0) << "x = " << x;
    ASSERT_EQ(ulps(math::ceil(x), std::ceil(wide)), 0) << "x = " << x;
    ASSERT_EQ(ulps(math::round(x), std::nearbyint(wide)), 0) << "x = " << x;
  }
}

TYPED_TEST(Functions, PowIsAccurate) {
  const std::vector<TypeParam> special = special_values<TypeParam>(), x = samples<TypeParam>();
  const auto expect_accurate = [](TypeParam base, TypeParam y) {
    const long double exact = std::pow(static_cast<long double>(base), static_cast<long double>(y));
    ASSERT_LE(ulps(math::pow(base, y), exact), 0.8) << base << "^" << y;
  };
  for (const TypeParam base : special)
    for (const TypeParam y : special) expect_accurate(base, y);
  for (std::size_t i = 0; i + 1 < x.size(); ++i) {
    expect_accurate(std::abs(x[i]), x[i + 1]);
    expect_accurate(x[i], std::nearbyint(std::fmod(x[i + 1], TypeParam(50))));
  }
}

TYPED_TEST(Functions, PowIsExactWhereTheResultIs) {
  constexpr double kMost = sizeof(TypeParam) == 4 ? 0x1p24 : 0x1p53;
  for (int base = -20; base <= 20; ++base) {
    double exact = 1;
    for (int n = 0; n < 16 && std::abs(exact) <= kMost; ++n, exact *= base)
      ASSERT_EQ(math::pow(TypeParam(base), TypeParam(n)), TypeParam(exact)) << base << "^" << n;
  }
}

// The loop is compiled for the instruction set of this processor; the call is not.
TYPED_TEST(Functions, OfPowersGiveTheSameBitsOnEveryInstructionSet) {
  const std::vector<TypeParam> x = samples<TypeParam>();
  const auto n = static_cast<std::int64_t>(x.size()) - 1;
  std::vector<TypeParam> power(x.size()), sum(x.size());
  kernels::map(Powers{}, 0, n, power.data(), x.data(), x.data() + 1);
  kernels::map(OfOne{}, 0, n, sum.data(), x.data());
  const auto same = [](TypeParam a, TypeParam b) {
    return math::to_bits(a) == math::to_bits(b) || (std::isnan(a) && std::isnan(b));
  };
  for (std::size_t i = 0; i + 1 < x.size(); ++i) {
    ASSERT_TRUE(same(power[i], Powers{}(x[i], x[i + 1]))) << x[i] << "^" << x[i + 1];
    ASSERT_TRUE(same(sum[i], OfOne{}(x[i]))) << x[i];
  }
}

}  // namespace kernels_powers_test
}  // namespace belfry
