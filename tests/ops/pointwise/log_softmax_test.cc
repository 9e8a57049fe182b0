#include "belfry/ops/pointwise/log_softmax.h"

#include <cmath>
#include <limits>

#include <gtest/gtest.h>

#include "belfry/framework/core_ops/placeholder.h"
#include "belfry/framework/gradients/gradients.h"
#include "belfry/tests/support/interpreter.h"
#include "belfry/tests/support/op_test.h"

namespace belfry {
namespace log_softmax_test {

constexpr double kInfinity = std::numeric_limits<double>::infinity();

Builder logs(int axis) {
  return [axis](Inputs x) { return log_softmax(x[0], axis); };
}
Builder sums(int axis, ReducedAxes kept = ReducedAxes::kDropped) {
  return [=](Inputs x) { return logsumexp(x[0], axis, kept); };
}

const double kLog3 = std::log(3.0), kLog4 = std::log(4.0);
const Tensor kRows({2, 2}, std::vector<double>{0, std::log(3.0), 5, 5});

TEST(LogSoftmax, HasValuesKnownByHand) {
  const std::vector<double> y = doubles(compute(logs(-1), {kRows}));
  EXPECT_NEAR(y[0], -kLog4, 1e-15);
  EXPECT_NEAR(y[1], kLog3 - kLog4, 1e-15);
  EXPECT_NEAR(y[2], -std::log(2.0), 1e-15);
  EXPECT_EQ(y[2], y[3]);
}

TEST(LogSumExp, HasValuesKnownByHand) {
  const std::vector<double> y = doubles(compute(sums(-1), {kRows}));
  EXPECT_NEAR(y[0], kLog4, 1e-15);
  EXPECT_NEAR(y[1], 5 + std::log(2.0), 1e-15);
}

// Large numbers lose nothing of their small differences.
TEST(LogSoftmax, NeitherOverflowsNorLosesDifferences) {
  const std::vector<double> y =
      doubles(compute(logs(1), {Tensor({1, 3}, std::vector<float>{1e6, 1e6 + 1, -1e6})}));
  const double log_sum = std::log(1 + std::exp(1.0));
  EXPECT_NEAR(y[0], -log_sum, 1e-6);
  EXPECT_NEAR(y[1], 1 - log_sum, 1e-6);
  EXPECT_NEAR(y[2], -2e6 - log_sum, 0.2);
}

TEST(LogSumExp, TakesInfinities) {
  const Tensor x({4, 2}, std::vector<double>{-kInfinity, -kInfinity, -kInfinity, 1, kInfinity, 2,
                                             1000, -1000});
  EXPECT_EQ(doubles(compute(sums(1), {x})), (std::vector<double>{-kInfinity, 1, kInfinity, 1000}));
  EXPECT_EQ(doubles(compute(sums(1), {Tensor({2, 0}, DType::kF32)})),
            (std::vector<double>{-kInfinity, -kInfinity}));
}

TEST(LogSumExp, DropsOrKeepsTheAxis) {
  const Tensor x = random_values({2, 3, 4});
  EXPECT_EQ(compute(sums(1), {x}).shape(), (Shape{2, 4}));
  EXPECT_EQ(compute(sums(0), {x}).shape(), (Shape{3, 4}));
  EXPECT_EQ(compute(sums(-1, ReducedAxes::kKept), {x}).shape(), (Shape{2, 3, 1}));
  EXPECT_EQ(compute(sums(0), {random_values({5})}).shape(), Shape());
  EXPECT_EQ(compute(sums(0, ReducedAxes::kKept), {random_values({5})}).shape(), Shape{1});
}

TEST(LogSumExp, TakesUnknownDimensions) {
  Graph graph;
  const Output x = placeholder(graph, "x", DType::kF32, {kUnknownSize, kUnknownSize, 4});
  EXPECT_EQ(logsumexp(x).shape(), (Shape{kUnknownSize, kUnknownSize}));
}

TEST(LogSoftmax, KeepsItsContract) {
  for (const auto& of :
       {+[](int axis) { return logs(axis); }, +[](int axis) { return sums(axis); }}) {
    check_op({.build = of(-1), .inputs = {random_values({5, 7})}});
    check_op({.build = of(0), .inputs = {random_values({5, 7})}, .library = true});
    check_op({.build = of(1), .inputs = {random_values({3, 2, 33})}});
    check_op({.build = of(0), .inputs = {random_values({9})}});
    check_op({.build = of(-1), .inputs = {random_values({2, 1500})}, .f32 = 2e-6});
  }
}

TEST(LogSoftmax, GradientsHaveGradients) {
  const Builder twice = [](Inputs x) {
    return Built(gradients(log_softmax(x[0]), {x[0]}, {.initial = {x[1]}}));
  };
  check_op({.build = twice,
            .inputs = {random_values({4, 6}), random_values({4, 6}, -1, 1, 2)},
            .f32 = 2e-6,
            .unknown = false});
}

// As in PyTorch.
TEST(LogSoftmax, OfNothingButNegativeInfinityIsNotANumber) {
  const Tensor hidden({1, 3}, std::vector<double>(3, -kInfinity));
  const Builder gradient = [](Inputs x) {
    return gradients(reduce_sum(log_softmax(x[0])), {x[0]})[0];
  };
  for (const double y : doubles(compute(logs(-1), {hidden}))) EXPECT_TRUE(std::isnan(y));
  for (const double dx : doubles(compute(gradient, {hidden}))) EXPECT_TRUE(std::isnan(dx));
}

TEST(LogSoftmax, RefusesAxesAndTypes) {
  expect_refused(logs(2), {{{4, 3}}}, "there is no axis 2 in 2 dimensions");
  expect_refused(sums(-2), {{{4}}}, "there is no axis -2 in 1 dimensions");
  expect_refused(logs(0), {{{}}}, "there is no axis 0 in 0 dimensions");
  expect_refused(logs(-1), {{{4, 3}, DType::kI32}}, "LogSoftmax");
  expect_refused([](Inputs x) { return x[0].graph().add(kLogSumExp, {x[0]}).output(); }, {{{4}}},
                 "needs rows, but the shape is [4]");
  expect_refused([](Inputs x) { return x[0].graph().add(kLogSoftmaxGrad, x).output(); },
                 {{{4, 3}}, {{4, 2}}}, "gradient and result have shapes [4,3] and [4,2]");
}

}  // namespace log_softmax_test
}  // namespace belfry
