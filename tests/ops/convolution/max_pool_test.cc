#include "belfry/ops/convolution/max_pool.h"

#include <cmath>
#include <limits>

#include <gtest/gtest.h>

#include "belfry/tests/support/op_test.h"

namespace belfry {
namespace max_pool_test {

Builder pooling(PoolOptions options = {}) {
  return [=](Inputs x) { return max_pool(x[0], options); };
}
// The places of the maxima.
Builder places(PoolOptions options = {}) {
  return [=](Inputs x) { return max_pool(x[0], options).node().output(1); };
}

// Values that are far apart, so that a numeric gradient meets no tie.
Tensor distinct_values(Shape shape) {
  Tensor x(shape, DType::kF32);
  const auto values = x.mutable_data<float>();
  for (std::size_t i = 0; i < values.size(); ++i)
    values[i] = static_cast<float>(i * 7919 % 1009) * 0.01f - 5;
  return x;
}

void check_pooling(PoolOptions options, Shape shape) {
  check_op({.build = pooling(options), .inputs = {distinct_values(shape)}});
}

TEST(MaxPool, TakesTheLargestOfEachWindow) {
  const Tensor x({1, 2, 4, 1}, std::vector<float>{1, 2, 8, 7, 4, 3, 5, 6});
  EXPECT_EQ(doubles(compute(pooling(), {x})), (std::vector<double>{4, 8}));
  EXPECT_EQ(doubles(compute(places(), {x})), (std::vector<double>{2, 0}));
}

TEST(MaxPool, PaddingNeverWins) {
  const Tensor x({1, 3, 3, 1}, std::vector<float>{-1, -2, -3, -4, -5, -6, -7, -8, -9});
  EXPECT_EQ(doubles(compute(pooling(), {x})), (std::vector<double>{-1, -3, -7, -9}));
  EXPECT_EQ(doubles(compute(pooling({.window = 3, .stride = 2}), {x})),
            (std::vector<double>{-1, -2, -4, -5}));
}

TEST(MaxPool, TheFirstOfEqualValuesGetsTheGradient) {
  const Tensor x({1, 2, 2, 1}, std::vector<float>(4, 3));
  EXPECT_EQ(doubles(compute(places(), {x})), (std::vector<double>{0}));
}

TEST(MaxPool, NaNWinsWhereverItIs) {
  for (int at = 0; at < 9; ++at)
    for (const int window : {2, 3}) {
      Tensor x({1, 3, 3, 1}, std::vector<float>{1, 9, 2, 8, 3, 7, 4, 6, 5});
      x.mutable_data<float>()[at] = std::numeric_limits<float>::quiet_NaN();
      const Tensor y =
          compute(pooling({.window = window, .stride = 1, .padding = Padding::kValid}), {x});
      const std::int64_t side = 4 - window;
      for (std::int64_t i = 0; i < y.elements(); ++i) {
        const std::int64_t row = at / 3 - i / side, column = at % 3 - i % side;
        const bool covered = row >= 0 && row < window && column >= 0 && column < window;
        EXPECT_EQ(std::isnan(y.data<float>()[i]), covered) << "NaN at " << at << ", window " << i;
      }
    }
}

TEST(MaxPool, KeepsItsContract) {
  check_pooling({}, {3, 4, 6, 5});
  check_pooling({}, {3, 5, 7, 33});
  check_pooling({.window = 3, .stride = 2}, {3, 7, 6, 17});
  check_pooling({.window = 3, .stride = 1, .padding = Padding::kValid}, {3, 5, 4, 2});
  check_pooling({.window = 2, .stride = 3, .padding = Padding::kValid}, {3, 8, 9, 2});
}

TEST(MaxPool, RefusesWindowsLargerThanTheImage) {
  expect_refused(pooling({.window = 3, .padding = Padding::kValid}), {{{1, 2, 9, 4}}},
                 "a window of 3 does not fit an image of height 2");
}

TEST(MaxPool, RefusesVectors) { expect_refused(pooling(), {{{4}}}, "rank 4"); }

}  // namespace max_pool_test
}  // namespace belfry
