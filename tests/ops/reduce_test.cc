#include "belfry/ops/reduce.h"

#include <cmath>

#include <gtest/gtest.h>

#include "belfry/framework/base/text.h"
#include "belfry/framework/core_ops/placeholder.h"
#include "belfry/tests/support/interpreter.h"
#include "belfry/tests/support/op_test.h"

namespace belfry {
namespace reduce_test {

Builder sum_over(std::vector<int> axes, ReducedAxes kept = ReducedAxes::kDropped) {
  return [=](Inputs x) { return reduce_sum(x[0], axes, kept); };
}
Builder mean_over(std::vector<int> axes, ReducedAxes kept = ReducedAxes::kDropped) {
  return [=](Inputs x) { return reduce_mean(x[0], axes, kept); };
}

const Tensor& digits() {
  static const Tensor tensor({2, 3}, std::vector<float>{1, 2, 3, 4, 5, 6});
  return tensor;
}

TEST(ReduceSum, AddsColumnsRowsAndEverything) {
  EXPECT_EQ(compute(sum_over({0}), {digits()}), Tensor({3}, std::vector<float>{5, 7, 9}));
  EXPECT_EQ(compute(sum_over({-1}), {digits()}), Tensor({2}, std::vector<float>{6, 15}));
  EXPECT_EQ(compute(sum_over({}), {digits()}), Tensor(21.f));
}

TEST(ReduceMean, DividesByWhatItAdded) {
  EXPECT_EQ(compute(mean_over({0}), {digits()}), Tensor({3}, std::vector<float>{2.5, 3.5, 4.5}));
  EXPECT_EQ(compute(mean_over({1}), {digits()}), Tensor({2}, std::vector<float>{2, 5}));
  EXPECT_EQ(compute(mean_over({}), {digits()}), Tensor(3.5f));
}

TEST(ReduceSum, KeepsReducedAxesAs1OnRequest) {
  EXPECT_EQ(compute(sum_over({1}, ReducedAxes::kKept), {digits()}).shape(), (Shape{2, 1}));
  EXPECT_EQ(compute(sum_over({}, ReducedAxes::kKept), {digits()}).shape(), (Shape{1, 1}));
}

TEST(ReduceSum, NamesOpsThatKeepTheBatchApart) {
  Graph graph;
  const Output x = placeholder(graph, "x", DType::kF32, {4, 5});
  EXPECT_STREQ(reduce_sum(x, {1}).node().op().name, "ReduceSumRows");
  EXPECT_STREQ(reduce_sum(x, {-2}).node().op().name, "ReduceSum");
  EXPECT_STREQ(reduce_mean(x, {1}).node().op().name, "ReduceMeanRows");
  EXPECT_STREQ(reduce_mean(x).node().op().name, "ReduceMean");
}

TEST(ReduceSum, KeepsItsContractForAllSetsOfAxes) {
  for (int set = 0; set < 16; ++set) {
    std::vector<int> axes;
    for (int axis = 0; axis < 4; ++axis)
      if (set >> axis & 1) axes.push_back(axis);
    SCOPED_TRACE(join(axes));
    const Tensor x = random_values({3, 4, 2, 5});
    const double gradient = set % 5 == 0 ? 1e-6 : -1;
    check_op({.build = sum_over(axes), .inputs = {x}, .gradient = gradient});
    check_op({.build = mean_over(axes, ReducedAxes::kKept), .inputs = {x}, .gradient = gradient});
  }
}

TEST(ReduceMean, KeepsItsContractForShapesOfTraining) {
  check_op({.build = sum_over({0}), .inputs = {random_values({257, 33})}, .gradient = -1});
  check_op(
      {.build = mean_over({0, 1, 2}), .inputs = {random_values({8, 9, 9, 20})}, .gradient = -1});
  check_op({.build = mean_over({1, 2}), .inputs = {random_values({3, 9, 9, 20})}, .gradient = -1});
  check_op({.build = mean_over({}), .inputs = {random_values({1025})}, .gradient = -1});
  check_op({.build = sum_over({}), .inputs = {random_values({})}});
}

TEST(ReduceSum, OfManyEqualTermsIsAccurate) {
  const Tensor ones({1 << 20, 2}, DType::kF32);
  Tensor x = ones;
  for (float& value : x.mutable_data<float>()) value = 0.1f;
  const Tensor y = compute(sum_over({0}), {x});
  EXPECT_NEAR(y.data<float>()[0], 0.1f * (1 << 20), 1);
  EXPECT_NEAR(compute(mean_over({}), {x}).item<float>(), 0.1, 1e-7);
}

TEST(ReduceSum, AddsIntegers) {
  EXPECT_EQ(compute(sum_over({0}), {Tensor({2, 2}, std::vector<std::int32_t>{1, 2, 3, 4})}),
            Tensor({2}, std::vector<std::int32_t>{4, 6}));
}

TEST(ReduceSum, OfNothingIs0AndTheMeanNan) {
  EXPECT_EQ(compute(sum_over({0}), {Tensor({0, 2}, DType::kF32)}).data<float>()[1], 0);
  EXPECT_TRUE(std::isnan(compute(mean_over({}), {Tensor({0}, DType::kF32)}).item<float>()));
}

TEST(ReduceSum, RefusesAxesThatAreNotThere) {
  expect_refused(sum_over({2}), {{{2, 3}}}, "no axis 2 in 2 dimensions");
  expect_refused(sum_over({0, -2}), {{{2, 3}}}, "axis -2 is given twice");
  expect_refused(mean_over({0}), {{{2, 3}, DType::kI32}}, "floating");
}

}  // namespace reduce_test
}  // namespace belfry
