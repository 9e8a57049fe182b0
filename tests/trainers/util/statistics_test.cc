#include "belfry/trainers/util/statistics.h"

#include <cmath>

#include <gtest/gtest.h>

#include "belfry/framework/base/error.h"

namespace belfry {
namespace statistics_test {

TEST(Median, IsTheMiddleValueOrTheMeanOfTheTwo) {
  EXPECT_EQ(median(std::vector{3.0, 1.0, 2.0}), 2);
  EXPECT_EQ(median(std::vector{4.0, 1.0, 3.0, 2.0}), 2.5);
  EXPECT_EQ(median(std::vector{7.0}), 7);
  EXPECT_THROW(median({}), InvalidArgument);
}

// By hand, for 8 samples a step: speeds 8, 4, 2, 8; mean time 9/4 s; mean speed 5.5, variance
// (2.5^2 + 1.5^2 + 3.5^2 + 2.5^2) / 4 = 6.75; median speed 6, distances 2, 2, 4, 2.
TEST(Speed, HasTheFormulasOfTfCnnBenchmarks) {
  const Speed speed = speed_of(8, std::vector{1.0, 2.0, 4.0, 1.0});
  EXPECT_DOUBLE_EQ(speed.mean, 8 / 2.0);
  EXPECT_DOUBLE_EQ(speed.uncertainty, std::sqrt(6.75) / 2);
  EXPECT_DOUBLE_EQ(speed.jitter, 1.4826 * 2);
}

TEST(Speed, OfOneStepIsCertain) {
  const Speed speed = speed_of(64, std::vector{0.5});
  EXPECT_EQ(speed.mean, 128);
  EXPECT_EQ(speed.uncertainty, 0);
  EXPECT_EQ(speed.jitter, 0);
  EXPECT_THROW(speed_of(64, {}), InvalidArgument);
}

TEST(PairedRatio, IsTheMedianOverRoundsWithItsRange) {
  const PairedRatio ratio = paired_ratio(std::vector{2.0, 6.0, 10.0}, std::vector{1.0, 2.0, 4.0});
  EXPECT_EQ(ratio.median, 2.5);
  EXPECT_EQ(ratio.spread, 1);
  EXPECT_THROW(paired_ratio(std::vector{1.0}, {}), InvalidArgument);
  EXPECT_THROW(paired_ratio({}, {}), InvalidArgument);
}

TEST(Rounded, HasAsManyDigitsAsAskedFor) {
  EXPECT_EQ(rounded(1.236, 2), "1.24");
  EXPECT_EQ(rounded(1e300, 0).size(), 301u);
}

TEST(Padded, AddsSpacesOnOneSideAndCutsNothing) {
  EXPECT_EQ(padded("ab", 4), "  ab");
  EXPECT_EQ(padded("ab", -4), "ab  ");
  EXPECT_EQ(padded("abcde", 4), "abcde");
  EXPECT_EQ(padded("abcde", -4), "abcde");
  EXPECT_EQ(padded("ab", 0), "ab");
}

}  // namespace statistics_test
}  // namespace belfry
