#include "belfry/ops/sigmoid_cross_entropy.h"

#include <cmath>

#include <gtest/gtest.h>

#include "belfry/framework/gradients/gradients.h"
#include "belfry/tests/support/op_test.h"

namespace belfry {
namespace sigmoid_cross_entropy_test {

Output built(Inputs x) { return sigmoid_cross_entropy(x[0], x[1]); }

TEST(SigmoidCrossEntropy, IsMinusTheLogProbabilityOfTheTarget) {
  const std::vector<double> x{0, std::log(3.0), std::log(3.0), -2}, z{1, 1, 0, 0.25};
  const std::vector<double> y = doubles(compute(built, {Tensor({4}, x), Tensor({4}, z)}));
  const double p = 1 / (1 + std::exp(2.0));
  const double expected[] = {std::log(2.0), -std::log(0.75), -std::log(0.25),
                             -0.25 * std::log(p) - 0.75 * std::log(1 - p)};
  for (std::size_t i = 0; i < y.size(); ++i) EXPECT_NEAR(y[i], expected[i], 1e-14) << i;
}

// Where the answer is right, the loss is e^-|x|, however small.
TEST(SigmoidCrossEntropy, OfLargeLogitsNeitherOverflowsNorVanishes) {
  const std::vector<float> x{500, -500, 30, -30}, z{0, 1, 1, 0};
  const std::vector<double> y = doubles(compute(built, {Tensor({4}, x), Tensor({4}, z)}));
  EXPECT_EQ(y[0], 500);
  EXPECT_EQ(y[1], 500);
  EXPECT_NEAR(y[2] / std::exp(-30.0), 1, 1e-6);
  EXPECT_NEAR(y[3] / std::exp(-30.0), 1, 1e-6);
}

TEST(SigmoidCrossEntropy, TheGradientIsSigmoidLessTarget) {
  const Builder gradient = [](Inputs x) { return gradients(built(x), {x[0]})[0]; };
  const Tensor x({2}, std::vector<double>{0, std::log(3.0)});
  const Tensor z({2}, std::vector<double>{1, 0.5});
  const std::vector<double> dx = doubles(compute(gradient, {x, z}));
  EXPECT_NEAR(dx[0], -0.5, 1e-15);
  EXPECT_NEAR(dx[1], 0.25, 1e-15);
}

TEST(SigmoidCrossEntropy, KeepsItsContract) {
  check_op(
      {.build = built, .inputs = {random_values({5, 7}, -4, 4), random_values({5, 7}, 0, 1, 2)}});
  check_op({.build = built, .inputs = {random_values({33}, 1, 9), random_values({33}, 0, 1, 2)}});
}

TEST(SigmoidCrossEntropy, RefusesTargetsOfAnotherShape) {
  expect_refused(built, {{{2, 3}}, {{3, 2}}}, "have shapes [2,3] and [3,2]");
  expect_refused(built, {{{2}}, {{2}, DType::kI32}}, "SigmoidCrossEntropy 'SigmoidCrossEntropy'");
}

}  // namespace sigmoid_cross_entropy_test
}  // namespace belfry
