#include "belfry/trainers/util/statistics.h"

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
