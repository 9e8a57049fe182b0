#include "belfry/ops/convolution/max_pool.h"

#include <cmath>
#include <limits>

#include <gtest/gtest.h>

#include "belfry/framework/gradients/gradients.h"
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

// The values of torch.nn.functional.max_pool2d.
TEST(MaxPool, GivesTheValuesOfPyTorchWithItsPadding) {
  std::vector<float> values(16);
  for (std::size_t i = 0; i < 16; ++i) values[i] = -static_cast<float>(i + 1);
  EXPECT_EQ(doubles(compute(pooling({.window = 3, .stride = 2, .padding = 1}),
                            {Tensor({1, 4, 4, 1}, values)})),
            (std::vector<double>{-1, -2, -5, -6}));
  for (float& value : values) value = -value;
  EXPECT_EQ(doubles(compute(pooling({.window = {1, 3}, .stride = {2, 1}, .padding = {0, 1}}),
                            {Tensor({1, 4, 4, 1}, values)})),
            (std::vector<double>{2, 3, 4, 4, 10, 11, 12, 12}));
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

TEST(MaxPool, KeepsItsContractForGivenPadding) {
  check_pooling({.window = 3, .stride = 2, .padding = 1}, {3, 7, 6, 17});
  check_pooling({.window = 3, .stride = 2, .padding = {0, 1, 2, 0}}, {3, 7, 6, 5});
  check_pooling({.window = 2, .stride = 2, .padding = 1}, {3, 4, 5, 8});
  check_pooling({.window = {3, 2}, .stride = {1, 2}, .padding = {1, 1, 0, 1}}, {3, 5, 6, 8});
  check_pooling({.window = {1, 20}, .stride = {1, 9}, .padding = {0, 3}}, {2, 2, 40, 3});
}

TEST(MaxPool, GradientsHaveGradients) {
  const Builder twice = [](Inputs x) {
    return Built(gradients(max_pool(x[0], {.window = 3, .stride = 2, .padding = 1}), {x[0]},
                           {.initial = {x[1]}}));
  };
  check_op({.build = twice,
            .inputs = {distinct_values({2, 5, 4, 3}), random_values({2, 3, 2, 3}, -1, 1, 2)},
            .nan = false,
            .unknown = false});
}

TEST(MaxPool, SecondGradientsAreThoseOfTheMaxima) {
  const Builder picked = [](Inputs x) {
    const Output dx = gradients(max_pool(x[0], {.window = 2}), {x[0]}, {.initial = {x[1]}}).at(0);
    return gradients(dx, {x[1]}, {.initial = {x[2]}}).at(0);
  };
  const Tensor x({1, 2, 4, 1}, std::vector<float>{1, 2, 8, 7, 4, 3, 5, 6});
  const Tensor dy({1, 1, 2, 1}, std::vector<float>{1, 1});
  const Tensor g({1, 2, 4, 1}, std::vector<float>{10, 20, 30, 40, 50, 60, 70, 80});
  EXPECT_EQ(doubles(compute(picked, {x, dy, g})), (std::vector<double>{50, 30}));
}

TEST(MaxPool, RefusesOptionsThatDoNotFit) {
  expect_refused(pooling({.window = {9, 30}}), {{{1, 99, 99, 4}}},
                 "windows of max pooling have at most 256 pixels, not 9 x 30");
  expect_refused(pooling({.count_include_pad = true}), {{{1, 9, 9, 4}}},
                 "padding never counts in max pooling");
  expect_refused(pooling({.window = 2, .padding = 2}), {{{1, 9, 9, 4}}},
                 "padding must be less than the window of 2, but the height has 2 before and 2");
}

TEST(MaxPool, SecondGradientsRefuseOtherPlaces) {
  const Builder twice = [](Inputs x) {
    return x[0]
        .graph()
        .add(kMaxPoolGradGrad, {x[0], x[1]}, {}, NodeOptions(PoolOptions{}))
        .output();
  };
  expect_refused(twice, {{{1, 4, 4, 3}}, {{1, 4, 4, 3}, DType::kU8}},
                 "needs images and the u8 places of the maxima, not f32[1,4,4,3] and u8[1,4,4,3]");
}

TEST(MaxPool, RefusesWindowsLargerThanTheImage) {
  expect_refused(pooling({.window = 3, .padding = Padding::kValid}), {{{1, 2, 9, 4}}},
                 "a window of 3 does not fit an image of height 2");
  // Its windows would have no pixels.
  expect_refused(pooling({.window = 2, .padding = 1}), {{{1, 9, 0, 4}}},
                 "a window of 2 does not fit an image of width 0 with a padding of 1 before and 1");
}

TEST(MaxPool, RefusesVectors) { expect_refused(pooling(), {{{4}}}, "rank 4"); }

}  // namespace max_pool_test
}  // namespace belfry
