#include "belfry/trainers/runs/histogram.h"

#include <limits>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace belfry {
namespace histogram_test {

using testing::Each;
using testing::ElementsAre;
using testing::IsEmpty;
using testing::SizeIs;

constexpr double kInfinity = std::numeric_limits<double>::infinity();

Histogram of(const std::vector<double>& values) {
  return histogram_of(Tensor({static_cast<std::int64_t>(values.size())}, values));
}

TEST(Histogram, CountsEachElementInOneOfEqualParts) {
  std::vector<double> values;
  for (int i = 0; i <= 60; ++i) values.push_back(i);
  const Histogram found = of(values);
  EXPECT_EQ(found.min, 0);
  EXPECT_EQ(found.max, 60);
  EXPECT_EQ(found.sum, 60 * 61 / 2);
  EXPECT_EQ(found.sum_squares, 60 * 61 * 121 / 6);
  ASSERT_THAT(found.counts, SizeIs(kHistogramBuckets));
  EXPECT_EQ(found.counts.back(), 3) << "58, 59 and the largest, 60";
  EXPECT_THAT(std::vector(found.counts.begin(), found.counts.end() - 1), Each(2));
  EXPECT_EQ(found.count(), 61);
  ASSERT_THAT(found.ends, SizeIs(kHistogramBuckets));
  for (int i = 0; i < kHistogramBuckets; ++i)
    EXPECT_DOUBLE_EQ(found.ends[static_cast<std::size_t>(i)], 2 * (i + 1));
}

TEST(Histogram, OfEqualElementsHasOneBucket) {
  const Histogram found = of({-2, -2, -2});
  EXPECT_THAT(found.ends, ElementsAre(-2));
  EXPECT_THAT(found.counts, ElementsAre(3));
  EXPECT_EQ(found.sum_squares, 12);
}

TEST(Histogram, LeavesOutWhatIsNotFinite) {
  const double nan = std::numeric_limits<double>::quiet_NaN();
  const Histogram found = of({nan, 1, kInfinity, 4, -kInfinity});
  EXPECT_EQ(found.count(), 2);
  EXPECT_EQ(found.min, 1);
  EXPECT_EQ(found.max, 4);
  EXPECT_EQ(found.sum, 5);
  for (const Histogram& none : {of({nan, kInfinity}), of({})}) {
    EXPECT_EQ(none.min, 0);
    EXPECT_EQ(none.max, 0);
    EXPECT_THAT(none.counts, IsEmpty());
  }
}

TEST(Histogram, TakesTheWidestAndTheNarrowestRange) {
  const double most = std::numeric_limits<double>::max();
  const Histogram widest = of({-most, 0, most});
  EXPECT_EQ(widest.counts.front(), 1);
  EXPECT_EQ(widest.counts[14] + widest.counts[15], 1) << "zero is where they meet";
  EXPECT_EQ(widest.counts.back(), 1);
  const double least = std::numeric_limits<double>::denorm_min();
  EXPECT_THAT(of({0, least}).counts, ElementsAre(2));
  const Histogram near = of({1e9, 1e9 + 1});
  EXPECT_EQ(near.counts.front(), 1);
  EXPECT_EQ(near.counts.back(), 1);
}

TEST(Histogram, TakesSinglePrecision) {
  const Histogram found = histogram_of(Tensor({3}, std::vector<float>{0.5f, 0, 1}));
  EXPECT_EQ(found.max, 1);
  EXPECT_EQ(found.count(), 3);
}

}  // namespace histogram_test
}  // namespace belfry
