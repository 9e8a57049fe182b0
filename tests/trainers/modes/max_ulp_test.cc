// The distance of two tensors in units in the last place.
#include <cmath>
#include <cstring>
#include <limits>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "belfry/trainers/modes/equivalence.h"

namespace belfry {
namespace max_ulp_test {

template <class T>
std::uint64_t ulp_of(T a, T b) {
  return max_ulp(Tensor({3}, std::vector<T>{T(1), a, T(1)}),
                 Tensor({3}, std::vector<T>{T(1), b, T(1)}));
}

TEST(MaxUlp, CountsRepresentableValuesBetweenFloats) {
  constexpr float kTiny = std::numeric_limits<float>::denorm_min();
  EXPECT_EQ(ulp_of(1.5F, 1.5F), 0u);
  EXPECT_EQ(ulp_of(1.0F, std::nextafter(1.0F, 2.0F)), 1u);
  EXPECT_EQ(ulp_of(1.0F, 2.0F), 1u << 23);
  EXPECT_EQ(ulp_of(-1.0F, -2.0F), 1u << 23);
  EXPECT_EQ(ulp_of(-0.0F, 0.0F), 1u);
  EXPECT_EQ(ulp_of(-kTiny, kTiny), 3u);
  EXPECT_EQ(ulp_of(std::numeric_limits<float>::max(), std::numeric_limits<float>::infinity()), 1u);
  EXPECT_EQ(ulp_of(1.0, std::nextafter(std::nextafter(1.0, 0.0), 0.0)), 2u);
}

TEST(MaxUlp, TakesTheLargestAndIsSymmetric) {
  const Tensor a({2}, std::vector{1.0F, 1.0F});
  const Tensor b({2}, std::vector{std::nextafter(1.0F, 2.0F), std::nextafter(1.0F, 0.0F)});
  const Tensor c({2}, std::vector{1.0F, 4.0F});
  EXPECT_EQ(max_ulp(a, b), 1u);
  EXPECT_EQ(max_ulp(a, c), 1u << 24);
  EXPECT_EQ(max_ulp(c, a), 1u << 24);
}

TEST(MaxUlp, TakesNansForEqualToEachOtherAlone) {
  const float nan = std::numeric_limits<float>::quiet_NaN();
  EXPECT_EQ(ulp_of(nan, -nan), 0u);
  EXPECT_EQ(ulp_of(nan, 1.0F), 0xFFFFFFFFu);
  EXPECT_EQ(ulp_of(1.0, double{nan}), std::numeric_limits<std::uint64_t>::max());
}

TEST(MaxUlp, IsTheDifferenceOfIntegers) {
  EXPECT_EQ(ulp_of<std::int32_t>(-3, 4), 7u);
  EXPECT_EQ(ulp_of<std::int64_t>(std::numeric_limits<std::int64_t>::min(),
                                 std::numeric_limits<std::int64_t>::max()),
            std::numeric_limits<std::uint64_t>::max());
  EXPECT_EQ(ulp_of<std::uint8_t>(250, 3), 247u);
}

TEST(MaxUlp, KnowsTheSixteenBitTypes) {
  const auto tensor = [](DType dtype, std::uint16_t bits) {
    Tensor t({}, dtype);
    std::memcpy(t.mutable_raw(), &bits, sizeof bits);
    return t;
  };
  for (const DType dtype : {DType::kF16, DType::kBF16}) {
    EXPECT_EQ(max_ulp(tensor(dtype, 0x3C00), tensor(dtype, 0x3C02)), 2u);
    EXPECT_EQ(max_ulp(tensor(dtype, 0x7FFF), tensor(dtype, 0x3C00)), 0xFFFFu);
  }
  EXPECT_EQ(max_ulp(tensor(DType::kBF16, 0x7C01), tensor(DType::kBF16, 0x7C00)), 1u);
  EXPECT_EQ(max_ulp(tensor(DType::kF16, 0x7C01), tensor(DType::kF16, 0x7C00)), 0xFFFFu);
}

TEST(MaxUlp, RefusesOtherTypesAndShapes) {
  EXPECT_THROW(max_ulp(Tensor(1.0F), Tensor(1.0)), InvalidArgument);
  EXPECT_THROW(max_ulp(Tensor({2}, DType::kF32), Tensor({1, 2}, DType::kF32)), InvalidArgument);
}

template <class T>
double relative(std::vector<T> a, std::vector<T> b) {
  const Tensor x({std::ssize(a)}, a), y({std::ssize(b)}, b);
  EXPECT_EQ(max_relative(x, y), max_relative(y, x)) << "symmetric";
  return max_relative(x, y);
}

TEST(MaxRelative, ComparesDifferencesWithTheLargestValue) {
  EXPECT_EQ(relative<float>({1, -4, 2}, {1, -4, 2}), 0);
  EXPECT_EQ(relative<float>({1, -4, 2}, {1, -4, 3}), 0.25);
  EXPECT_EQ(relative<float>({0, 0}, {0, -2}), 1);
  EXPECT_EQ(relative<float>({5}, {-5}), 2);
  EXPECT_EQ(relative<double>({1e308}, {-1e308}), 2) << "no overflow";
  EXPECT_EQ(relative<std::int64_t>({-3, 8}, {-4, 8}), 0.125);
  EXPECT_EQ(relative<std::uint8_t>({200}, {100}), 0.5);
  EXPECT_EQ(relative<float>({}, {}), 0);
  EXPECT_THROW(max_relative(Tensor(1.0F), Tensor(1.0)), InvalidArgument);
}

TEST(MaxRelative, IsSmallForASignThatChangesNearZero) {
  const Tensor a({2}, std::vector{1e-9F, 1.0F}), b({2}, std::vector{-1e-9F, 1.0F});
  EXPECT_GT(max_ulp(a, b), 1u << 30);
  EXPECT_NEAR(max_relative(a, b), 2e-9, 1e-12);
  EXPECT_EQ(relative<float>({-0.0F}, {0.0F}), 0) << "though their bits differ";
}

TEST(MaxRelative, IsInfiniteForAValueThatOnlyOneSideHasFinite) {
  const float nan = std::numeric_limits<float>::quiet_NaN();
  const float infinity = std::numeric_limits<float>::infinity();
  EXPECT_EQ(relative<float>({nan, infinity, 4}, {-nan, infinity, 5}), 0.2);
  EXPECT_EQ(relative<float>({nan}, {1}), infinity);
  EXPECT_EQ(relative<float>({infinity}, {-infinity}), infinity);
  EXPECT_EQ(relative<float>({infinity}, {1}), infinity);
}

TEST(MaxRelative, KnowsTheSixteenBitTypes) {
  const auto tensor = [](DType dtype, std::uint16_t bits) {
    Tensor t({}, dtype);
    std::memcpy(t.mutable_raw(), &bits, sizeof bits);
    return t;
  };
  EXPECT_EQ(max_relative(tensor(DType::kF16, 0x3C00), tensor(DType::kF16, 0x4000)), 0.5);
  EXPECT_EQ(max_relative(tensor(DType::kBF16, 0x3F80), tensor(DType::kBF16, 0x4000)), 0.5);
}

}  // namespace max_ulp_test
}  // namespace belfry
