#include "belfry/ops/reduce_max.h"

#include <cmath>
#include <span>

#include <gtest/gtest.h>

#include "belfry/framework/base/text.h"
#include "belfry/framework/core_ops/placeholder.h"
#include "belfry/framework/gradients/gradients.h"
#include "belfry/tests/support/op_test.h"

namespace belfry {
namespace reduce_max_test {

using Reduce = Output (*)(Output, std::vector<int>, ReducedAxes, At);
constexpr Reduce kReductions[] = {reduce_max, reduce_min, reduce_prod};

Builder over(Reduce reduce, std::vector<int> axes, ReducedAxes kept = ReducedAxes::kDropped) {
  return [=](Inputs x) { return reduce(x[0], axes, kept, At()); };
}

// The gradient of the sum of the results.
Builder gradient(Reduce reduce, std::vector<int> axes) {
  return [=](Inputs x) {
    return gradients(reduce_sum(reduce(x[0], axes, ReducedAxes::kDropped, At())), {x[0]})[0];
  };
}

Tensor floats(Shape shape, std::vector<float> values) { return {std::move(shape), values}; }

const Tensor& digits() {
  static const Tensor tensor = floats({2, 3}, {1, 5, 3, 4, 2, 6});
  return tensor;
}

TEST(ReduceMax, OfColumnsRowsAndEverything) {
  EXPECT_EQ(compute(over(reduce_max, {0}), {digits()}), floats({3}, {4, 5, 6}));
  EXPECT_EQ(compute(over(reduce_max, {-1}), {digits()}), floats({2}, {5, 6}));
  EXPECT_EQ(compute(over(reduce_max, {}), {digits()}), Tensor(6.f));
  EXPECT_EQ(compute(over(reduce_max, {1}, ReducedAxes::kKept), {digits()}), floats({2, 1}, {5, 6}));
  EXPECT_EQ(compute(over(reduce_max, {}), {Tensor(3.f)}), Tensor(3.f));
}

TEST(ReduceMin, OfColumnsRowsAndEverything) {
  EXPECT_EQ(compute(over(reduce_min, {0}), {digits()}), floats({3}, {1, 2, 3}));
  EXPECT_EQ(compute(over(reduce_min, {-1}), {digits()}), floats({2}, {1, 2}));
  EXPECT_EQ(compute(over(reduce_min, {}), {digits()}), Tensor(1.f));
}

TEST(ReduceProd, OfColumnsRowsAndEverything) {
  EXPECT_EQ(compute(over(reduce_prod, {0}), {digits()}), floats({3}, {4, 10, 18}));
  EXPECT_EQ(compute(over(reduce_prod, {-1}), {digits()}), floats({2}, {15, 48}));
  EXPECT_EQ(compute(over(reduce_prod, {}), {digits()}), Tensor(720.f));
  EXPECT_EQ(compute(over(reduce_prod, {1}, ReducedAxes::kKept), {digits()}),
            floats({2, 1}, {15, 48}));
  EXPECT_EQ(compute(over(reduce_prod, {0}), {Tensor({0, 2}, DType::kF32)}), floats({2}, {1, 1}));
}

TEST(ReduceMax, TakesIntegers) {
  const Tensor x({2, 2}, std::vector<std::int32_t>{-1, -2, -3, -4});
  EXPECT_EQ(compute(over(reduce_max, {0}), {x}), Tensor({2}, std::vector<std::int32_t>{-1, -2}));
  EXPECT_EQ(compute(over(reduce_min, {}), {x}), Tensor(std::int32_t{-4}));
  EXPECT_EQ(compute(over(reduce_prod, {1}), {x}), Tensor({2}, std::vector<std::int32_t>{2, 12}));
}

TEST(ReduceMax, IsNanOfNanAndTakes0For0OfEitherSign) {
  std::vector<float> values(70, -1);
  values[40] = NAN;
  EXPECT_TRUE(std::isnan(compute(over(reduce_max, {}), {floats({70}, values)}).item<float>()));
  for (const float zero : {0.f, -0.f})
    for (const std::int64_t n : {2, 17, 300}) {
      std::vector<float> signs(static_cast<std::size_t>(n), zero);
      signs[1] = -zero;
      const Tensor zeros = floats({n}, signs);
      EXPECT_FALSE(std::signbit(compute(over(reduce_max, {}), {zeros}).item<float>()));
      EXPECT_TRUE(std::signbit(compute(over(reduce_min, {}), {zeros}).item<float>()));
    }
}

// Their sum is NaN, as if the row had one.
TEST(ReduceMax, TakesInfinitiesOfBothSigns) {
  std::vector<float> values(100, 1);
  values[30] = INFINITY;
  values[70] = -INFINITY;
  EXPECT_EQ(compute(over(reduce_max, {}), {floats({100}, values)}), Tensor(float{INFINITY}));
  EXPECT_EQ(compute(over(reduce_min, {}), {floats({100}, values)}), Tensor(float{-INFINITY}));
}

// As torch.amax.
TEST(SpreadToTies, GivesEqualSharesOfTheGradient) {
  const Tensor x = floats({2, 4}, {1, 7, 7, 2, 3, 3, 3, 3});
  EXPECT_EQ(compute(gradient(reduce_max, {1}), {x}),
            floats({2, 4}, {0, .5f, .5f, 0, .25f, .25f, .25f, .25f}));
  EXPECT_EQ(compute(gradient(reduce_min, {0}), {x}), floats({2, 4}, {1, 0, 0, 1, 0, 1, 1, 0}));
  EXPECT_EQ(compute(gradient(reduce_max, {}), {x}), floats({2, 4}, {0, .5f, .5f, 0, 0, 0, 0, 0}));
}

TEST(SpreadToTies, GivesNanToAllIfTheLargestIsNan) {
  const Tensor dx = compute(gradient(reduce_max, {1}), {floats({2, 2}, {1, NAN, 2, 1})});
  EXPECT_TRUE(std::isnan(dx.data<float>()[0]) && std::isnan(dx.data<float>()[1]));
  EXPECT_EQ(dx.data<float>()[2], 1);
}

// The gradient of the gradient with respect to the gradient of y.
TEST(MeanOfTies, IsTheMeanOverTheLargest) {
  const Builder second = [](Inputs x) {
    const Output y = reduce_max(x[0], {1});
    const Output dx = gradients(y, {x[0]}, {.initial = {x[1]}})[0];
    return gradients(dx, {x[1]}, {.initial = {x[2]}})[0];
  };
  EXPECT_EQ(compute(second, {floats({2, 3}, {1, 7, 7, 3, 2, 1}), floats({2}, {1, 1}),
                             floats({2, 3}, {9, 4, 6, 2, 8, 8})}),
            floats({2}, {5, 2}));
  check_op({.build = second,
            .inputs = {random_values({3, 5}), random_values({3}, -1, 1, 2),
                       random_values({3, 5}, -1, 1, 3)},
            .nan = false});
}

TEST(ReduceProd, HasGradientsOfZeros) {
  const Tensor x = floats({3, 3}, {2, 3, 4, 0, 3, 4, 0, 0, 4});
  EXPECT_EQ(compute(gradient(reduce_prod, {1}), {x}),
            floats({3, 3}, {12, 8, 6, 12, 0, 0, 0, 0, 0}));
}

TEST(ReduceMax, KeepsItsContractForAllSetsOfAxes) {
  for (int set = 0; set < 16; ++set) {
    std::vector<int> axes;
    for (int axis = 0; axis < 4; ++axis)
      if (set >> axis & 1) axes.push_back(axis);
    SCOPED_TRACE(join(axes));
    const double gradient = set % 5 == 0 ? 1e-6 : -1;
    for (const Reduce reduce : std::span(kReductions).first(2))
      check_op({.build = over(reduce, axes, set % 2 ? ReducedAxes::kKept : ReducedAxes::kDropped),
                .inputs = {random_values({3, 4, 2, 5})},
                .gradient = gradient});
  }
}

TEST(ReduceMax, KeepsItsContractForShapesOfTraining) {
  check_op({.build = over(reduce_max, {1}), .inputs = {random_values({7, 257})}, .gradient = -1});
  check_op(
      {.build = over(reduce_min, {1}), .inputs = {random_values({5, 70, 40})}, .gradient = -1});
  check_op({.build = over(reduce_max, {0}), .inputs = {random_values({257, 33})}, .gradient = -1});
  check_op({.build = over(reduce_min, {}), .inputs = {random_values({3025})}, .gradient = -1});
  check_op({.build = gradient(reduce_max, {1}),
            .inputs = {random_values({5, 70, 4})},
            .gradient = -1,
            .nan = false});
  check_op({.build = gradient(reduce_max, {1}),
            .inputs = {random_values({5, 270})},
            .gradient = -1,
            .nan = false});
  check_op({.build = gradient(reduce_max, {0}),
            .inputs = {random_values({270})},
            .gradient = -1,
            .nan = false});
}

TEST(ReduceProd, KeepsItsContract) {
  check_op({.build = over(reduce_prod, {1}), .inputs = {random_values({4, 5, 3})}});
  check_op({.build = over(reduce_prod, {-1, 1}), .inputs = {random_values({4, 2, 3})}});
  check_op({.build = over(reduce_prod, {0}, ReducedAxes::kKept),
            .inputs = {random_values({4, 3})},
            .unknown = false});
}

TEST(ReduceMax, RefusesWhatHasNoLargest) {
  expect_refused(over(reduce_max, {1}), {{{2, 0}}},
                 "axis 1 of [2,0] has no elements, of which none is the largest or smallest");
  expect_refused(over(reduce_max, {2}), {{{2, 3}}}, "no axis 2 in 2 dimensions");
  expect_refused(over(reduce_min, {0, -2}), {{{2, 3}}}, "axis -2 is given twice");
  expect_refused(over(reduce_min, {0, 2, -3}), {{{2, 3, 4}}}, "axis -3 is given twice");
  expect_refused(over(reduce_min, {0}), {{{2}, DType::kBool}}, "no arithmetic on bool; cast it");
}

TEST(ReduceProd, RefusesUnknownSizesAndAxesThatAreNotThere) {
  expect_refused(over(reduce_prod, {0}), {{{kUnknownSize, 3}}},
                 "axis 0 of [?,3] has no known size");
  expect_refused(over(reduce_prod, {1, 2}), {{{2, 3}}}, "of the axes 1, 2, one is not an axis of");
  expect_refused(over(reduce_prod, {1, -1}), {{{2, 3}}}, "of the axes 1, -1, one is there twice");
}

TEST(SpreadToTies, RefusesOtherShapes) {
  const auto build = [](const Op& op) {
    return Builder([&op](Inputs x) {
      return x[0].graph().add(op, x, {}, NodeOptions(ReductionOptions{{1}})).output();
    });
  };
  expect_refused(build(kSpreadToTies), {{{2}}, {{3, 4}}, {{3}}}, "but the reduced tensor is [3]");
  expect_refused(build(kMeanOfTies), {{{3, 3}}, {{3, 4}}, {{3}}}, "but the last must be [3]");
}

}  // namespace reduce_max_test
}  // namespace belfry
