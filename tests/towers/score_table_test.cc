#include "belfry/towers/score_table.h"

#include <cmath>
#include <limits>

#include <gtest/gtest.h>

namespace belfry {
namespace score_table_test {

std::vector<ScoreCount> counts_of(ScoreTable& table) {
  return {table.counts().begin(), table.counts().end()};
}

TEST(ScoreTable, CountsEachScoreByLabelInOrder) {
  const double inf = std::numeric_limits<double>::infinity();
  ScoreTable table;
  table.add(std::vector<double>{2, 1, -inf, 0, 0.0, 1, -0.0, 0, 2, 1, 7, 0.5, -3, 0, inf, 1});
  const std::vector<ScoreCount> counts = counts_of(table);
  ASSERT_EQ(counts.size(), 5u);
  const double zeros[] = {1, 1, 1, 0, 0}, ones[] = {0, 0, 1, 2, 1};
  for (std::size_t i = 0; i < counts.size(); ++i) {
    EXPECT_EQ(counts[i].zeros, zeros[i]) << i;
    EXPECT_EQ(counts[i].ones, ones[i]) << i;
    if (i == 0) continue;
    EXPECT_LT(counts[i - 1].place, counts[i].place);
  }
}

TEST(ScoreTable, HasNaNIfAScoreThatCountsIs) {
  const double nan = std::nan("");
  ScoreTable table;
  table.add(std::vector<double>{nan, 2});
  EXPECT_FALSE(table.has_nan());
  table.add(std::vector<double>{nan, 1});
  EXPECT_TRUE(table.has_nan());
  table.clear();
  EXPECT_FALSE(table.has_nan());
}

// The last rows of either table are not sorted yet.
TEST(ScoreTable, AddsUpTables) {
  const auto rows = [](int begin, int end) {
    std::vector<double> result;
    for (int i = begin; i < end; ++i)
      result.insert(result.end(),
                    {static_cast<double>(i * 7919 % 6007), static_cast<double>(i % 2)});
    return result;
  };
  ScoreTable whole, first, second;
  whole.add(rows(0, 12000));
  first.add(rows(0, 4500));
  first.add(rows(4500, 4600));
  second.add(rows(4600, 9500));
  second.add(rows(9500, 12000));
  first.add(second);
  const std::vector<ScoreCount> a = counts_of(whole), b = counts_of(first);
  ASSERT_EQ(a.size(), 6007u);
  ASSERT_EQ(b.size(), a.size());
  for (std::size_t i = 0; i < a.size(); ++i) {
    EXPECT_EQ(a[i].place, b[i].place) << i;
    EXPECT_EQ(a[i].zeros, b[i].zeros) << i;
    EXPECT_EQ(a[i].ones, b[i].ones) << i;
  }
}

// 1.5 million scores, of which 2^20 can be told apart, in parts of any sizes and order.
TEST(ScoreTable, DoesNotDependOnHowSamplesAreDividedEvenIfBitsAreCutOff) {
  constexpr std::int64_t kSamples = 1500000;
  const auto rows = [](std::int64_t begin, std::int64_t end) {
    std::vector<double> result;
    for (std::int64_t i = begin; i < end; ++i) {
      const auto place = static_cast<double>(i * 7919 % kSamples);
      result.insert(result.end(), {1 + place / kSamples, static_cast<double>(i % 2)});
    }
    return result;
  };
  ScoreTable whole, first, second;
  whole.add(rows(0, kSamples));
  first.add(rows(1200000, kSamples));
  second.add(rows(0, 500000));
  second.add(rows(500000, 1200000));
  std::string bytes;
  first.write(bytes);
  second.write(bytes);
  ScoreTable both;
  std::string_view left = bytes;
  both.read(left);
  both.read(left);
  EXPECT_TRUE(left.empty());
  const std::vector<ScoreCount> a = counts_of(whole), b = counts_of(both);
  EXPECT_GT(a.size(), std::size_t{1} << 19);
  EXPECT_LE(a.size(), std::size_t{1} << 20);
  ASSERT_EQ(a.size(), b.size());
  double samples = 0;
  for (std::size_t i = 0; i < a.size(); ++i) {
    samples += a[i].zeros + a[i].ones;
    if (a[i].place == b[i].place && a[i].zeros == b[i].zeros && a[i].ones == b[i].ones) continue;
    FAIL() << "count " << i << " differs";
  }
  EXPECT_EQ(samples, kSamples);
}

}  // namespace score_table_test
}  // namespace belfry
