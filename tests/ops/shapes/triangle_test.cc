#include "belfry/ops/shapes/triangle.h"

#include <limits>

#include <gtest/gtest.h>

#include "belfry/tests/support/op_test.h"

namespace belfry {
namespace triangle_test {

Builder lower(std::int64_t diagonal) {
  return [=](Inputs x) { return tril(x[0], diagonal); };
}
Builder upper(std::int64_t diagonal) {
  return [=](Inputs x) { return triu(x[0], diagonal); };
}

TEST(Triangle, KeepsOneSideOfADiagonal) {
  const Tensor x({2, 3}, std::vector<float>{1, 2, 3, 4, 5, 6});
  const auto values = [&](const Builder& build) { return doubles(compute(build, {x})); };
  EXPECT_EQ(values(lower(0)), (std::vector<double>{1, 0, 0, 4, 5, 0}));
  EXPECT_EQ(values(lower(1)), (std::vector<double>{1, 2, 0, 4, 5, 6}));
  EXPECT_EQ(values(lower(-3)), (std::vector<double>{0, 0, 0, 0, 0, 0}));
  EXPECT_EQ(values(upper(0)), (std::vector<double>{1, 2, 3, 0, 5, 6}));
  EXPECT_EQ(values(upper(2)), (std::vector<double>{0, 0, 3, 0, 0, 0}));
  EXPECT_EQ(values(upper(-9)), (std::vector<double>{1, 2, 3, 4, 5, 6}));
}

TEST(Triangle, DropsWhateverIsOnTheOtherSide) {
  constexpr float kInfinity = std::numeric_limits<float>::infinity();
  const Tensor x({2, 2}, std::vector<float>{1, kInfinity, 3, 4});
  EXPECT_EQ(doubles(compute(lower(0), {x})), (std::vector<double>{1, 0, 3, 4}));
}

TEST(Triangle, KeepsItsContract) {
  for (const std::int64_t diagonal : {-1, 0, 2}) {
    check_op({.build = lower(diagonal), .inputs = {random_values({5, 4})}, .nan = false});
    check_op({.build = upper(diagonal), .inputs = {random_values({7, 3, 4})}, .nan = false});
  }
}

TEST(Triangle, RefusesVectors) {
  expect_refused(lower(0), {{{4}}}, "needs matrices [..., m, n], not [4]");
}

}  // namespace triangle_test
}  // namespace belfry
