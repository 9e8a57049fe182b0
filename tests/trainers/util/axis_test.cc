#include "belfry/trainers/util/axis.h"

#include <cmath>
#include <limits>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace belfry {
namespace axis_test {

using testing::ElementsAre;

std::vector<std::string> texts(const Axis& axis, int most) {
  std::vector<std::string> all;
  for (const Axis::Tick& tick : axis.ticks(most)) all.push_back(tick.text);
  return all;
}

Axis linear(double least, double most) { return {least, most, Axis::Scale::kLinear, 0, 100}; }
Axis logarithmic(double least, double most) { return {least, most, Axis::Scale::kLog, 0, 100}; }

TEST(Axis, PutsValuesBetweenItsEnds) {
  EXPECT_DOUBLE_EQ(linear(10, 20).at(15), 50);
  EXPECT_DOUBLE_EQ(logarithmic(1, 100).at(10), 50);
  EXPECT_DOUBLE_EQ(linear(10, 20).at(99), 100);
  EXPECT_DOUBLE_EQ(linear(10, 20).at(-99), 0);
  EXPECT_DOUBLE_EQ(logarithmic(1, 100).at(-1), 0);
  EXPECT_DOUBLE_EQ(linear(10, 20).at(std::nan("")), 0);
}

TEST(Axis, HasRoundTicks) {
  EXPECT_THAT(texts(linear(0, 2.1), 6), ElementsAre("0.0", "0.5", "1.0", "1.5", "2.0"));
  EXPECT_THAT(texts(linear(-1, 1), 5), ElementsAre("-1.0", "-0.5", "0.0", "0.5", "1.0"));
  EXPECT_THAT(texts(linear(0, 0.3), 3), ElementsAre("0.0", "0.1", "0.2", "0.3"));
  EXPECT_THAT(texts(linear(0, 300000), 3), ElementsAre("0", "100k", "200k", "300k"));
  EXPECT_THAT(texts(linear(100001, 100500), 5),
              ElementsAre("100.1k", "100.2k", "100.3k", "100.4k", "100.5k"));
  EXPECT_THAT(texts(linear(0, 2e-7), 2), ElementsAre("0", "1e-07", "2e-07"));
  EXPECT_THAT(texts(linear(0, 5), 5), ElementsAre("0", "1", "2", "3", "4", "5"));
}

TEST(Axis, OfLogarithmsHasPowersOfTen) {
  EXPECT_THAT(texts(logarithmic(0.05, 200), 6), ElementsAre("0.1", "1", "10", "100"));
  EXPECT_THAT(texts(logarithmic(0.5, 12), 6), ElementsAre("0.5", "1", "2", "5", "10"));
  EXPECT_THAT(texts(logarithmic(1e-10, 1e290), 6),
              ElementsAre("1", "1e+50", "1e+100", "1e+150", "1e+200", "1e+250"));
  EXPECT_THAT(texts(logarithmic(3.1, 3.4), 3), ElementsAre("3.1", "3.2", "3.3", "3.4"))
      << "where no power of ten is near";
}

TEST(Axis, OfAnyValuesHasTicksWithinItsEnds) {
  const double values[] = {0, -1, 1, 1e-320, 1e300, -1e300, 3, 3 + 1e-15, 1.7e308};
  for (const double least : values)
    for (const double most : values)
      for (const bool is_log : {false, true}) {
        if (least > most || (is_log && least <= 0)) continue;
        const Axis axis = is_log ? logarithmic(least, most) : linear(least, most);
        const auto ticks = axis.ticks(6);
        EXPECT_LE(ticks.size(), 12u) << least << " " << most;
        EXPECT_GE(ticks.size(), 1u) << least << " " << most;
        for (const Axis::Tick& tick : ticks) {
          EXPECT_TRUE(std::isfinite(tick.value)) << least << " " << most;
          EXPECT_TRUE(std::isfinite(axis.at(tick.value))) << least << " " << most;
        }
      }
}

}  // namespace axis_test
}  // namespace belfry
