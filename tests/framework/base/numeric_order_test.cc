#include "belfry/framework/base/numeric_order.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace belfry {
namespace numeric_order_test {

TEST(NumericOrder, ComparesRunsOfDigitsByTheirValue) {
  EXPECT_TRUE(numerically_less("/device:CPU:2", "/device:CPU:10"));
  EXPECT_FALSE(numerically_less("/device:CPU:10", "/device:CPU:2"));
  EXPECT_TRUE(numerically_less("/device:CPU:10", "/device:GPU:2"));
  EXPECT_TRUE(numerically_less("a9b10", "a10b9"));
  EXPECT_TRUE(numerically_less("a", "a0"));
  EXPECT_FALSE(numerically_less("a", "a"));
  EXPECT_FALSE(numerically_less("a01", "a1"));
  EXPECT_FALSE(numerically_less("a1", "a01"));
  EXPECT_TRUE(numerically_less("a99999999999999999999998", "a99999999999999999999999"));
  EXPECT_TRUE(numerically_less("", "1"));
}

TEST(NumericOrder, ListsMapsByIt) {
  const std::map<std::string, int> map{{"cpu:10", 1}, {"cpu:2", 2}, {"cpu:0", 3}};
  EXPECT_THAT(in_numeric_order(map),
              testing::ElementsAre(testing::Pair("cpu:0", 3), testing::Pair("cpu:2", 2),
                                   testing::Pair("cpu:10", 1)));
}

}  // namespace numeric_order_test
}  // namespace belfry
