#include "belfry/ops/convolution/avg_pool.h"

#include <gtest/gtest.h>

#include "belfry/framework/gradients/gradients.h"
#include "belfry/tests/support/op_test.h"

namespace belfry {
namespace avg_pool_test {

Builder pooling(PoolOptions options = {}) {
  return [=](Inputs x) { return avg_pool(x[0], options); };
}

void check_pooling(PoolOptions options, Shape shape) {
  check_op({.build = pooling(options), .inputs = {random_values(shape)}});
}

TEST(AvgPool, TakesTheMeanOfEachWindow) {
  const Tensor x({1, 2, 4, 1}, std::vector<float>{1, 2, 8, 7, 4, 3, 5, 6});
  EXPECT_EQ(doubles(compute(pooling(), {x})), (std::vector<double>{2.5, 6.5}));
}

TEST(AvgPool, PaddingDoesNotCount) {
  const Tensor x({1, 3, 3, 1}, std::vector<float>{1, 2, 3, 4, 5, 6, 7, 8, 9});
  EXPECT_EQ(doubles(compute(pooling(), {x})), (std::vector<double>{3, 4.5, 7.5, 9}));
}

Tensor sixteen() {
  std::vector<double> values(16);
  for (std::size_t i = 0; i < 16; ++i) values[i] = static_cast<double>(i + 1);
  return Tensor({1, 4, 4, 1}, values);
}

// The values of torch.nn.functional.avg_pool2d(x, 3, 2, 1).
TEST(AvgPool, CountsPaddingAsPyTorchIfAsked) {
  const std::vector<double> sums{14, 30, 57, 99};
  const std::vector<double> y = doubles(compute(
      pooling({.window = 3, .stride = 2, .padding = 1, .count_include_pad = true}), {sixteen()}));
  ASSERT_EQ(y.size(), 4u);
  for (std::size_t i = 0; i < 4; ++i) EXPECT_DOUBLE_EQ(y[i], sums[i] / 9);
  EXPECT_EQ(doubles(compute(pooling({.window = 3, .stride = 2, .padding = 1}), {sixteen()})),
            (std::vector<double>{3.5, 5, 9.5, 11}));
}

TEST(AvgPool, KeepsItsContractForGivenPadding) {
  check_pooling({.window = 3, .stride = 2, .padding = 1}, {3, 7, 6, 5});
  check_pooling({.window = 3, .stride = 2, .padding = {0, 1, 2, 0}, .count_include_pad = true},
                {3, 7, 6, 5});
  check_pooling({.window = {1, 3}, .stride = {2, 1}, .padding = {0, 1}, .count_include_pad = true},
                {3, 5, 4, 17});
  check_pooling({.window = 2, .count_include_pad = true}, {3, 5, 5, 3});
}

TEST(AvgPool, KeepsItsContract) {
  check_pooling({}, {3, 4, 6, 5});
  check_pooling({}, {3, 5, 7, 33});
  check_pooling({.window = 3, .stride = 2}, {3, 7, 6, 17});
  check_pooling({.window = 3, .stride = 1, .padding = Padding::kValid}, {3, 5, 4, 2});
}

TEST(AvgPool, GradientsHaveGradients) {
  const Builder twice = [](Inputs x) {
    return Built(gradients(avg_pool(x[0]), {x[0]}, {.initial = {x[1]}}));
  };
  check_op({.build = twice,
            .inputs = {random_values({2, 5, 4, 3}), random_values({2, 3, 2, 3}, -1, 1, 2)},
            .nan = false,
            .unknown = false});
}

TEST(AvgPool, RefusesPaddingAsLargeAsTheWindow) {
  expect_refused(pooling({.window = {2, 3}, .padding = {0, 2, 1, 1}}), {{{1, 9, 9, 4}}},
                 "padding must be less than the window of 2, but the height has 0 before and 2");
}

TEST(AvgPool, RefusesWindowsLargerThanTheImage) {
  expect_refused(pooling({.window = 3, .padding = Padding::kValid}), {{{1, 9, 2, 4}}},
                 "a window of 3 does not fit an image of width 2");
}

}  // namespace avg_pool_test
}  // namespace belfry
