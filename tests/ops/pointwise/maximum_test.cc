#include "belfry/ops/pointwise/maximum.h"

#include <cmath>
#include <limits>

#include <gtest/gtest.h>

#include "belfry/framework/base/text.h"
#include "belfry/framework/gradients/gradients.h"
#include "belfry/tests/support/op_test.h"

namespace belfry {
namespace maximum_test {

Output largest(Inputs x) { return maximum(x[0], x[1]); }
Output smallest(Inputs x) { return minimum(x[0], x[1]); }

const Tensor kLeft({4}, std::vector<float>{1, 5, 3, -2});
const Tensor kRight({4}, std::vector<float>{4, 2, 3, -7});

TEST(Maximum, HasValuesKnownByHand) {
  EXPECT_EQ(doubles(compute(largest, {kLeft, kRight})), (std::vector<double>{4, 5, 3, -2}));
  EXPECT_EQ(doubles(compute(smallest, {kLeft, kRight})), (std::vector<double>{1, 2, 3, -7}));
}

TEST(Maximum, HalvesTheGradientOfTies) {
  const auto share = [](auto op, std::size_t i) {
    return doubles(compute([=](Inputs x) { return gradients(op(x), {x[i]})[0]; }, {kLeft, kRight}));
  };
  EXPECT_EQ(share(largest, 0), (std::vector<double>{0, 1, 0.5, 1}));
  EXPECT_EQ(share(largest, 1), (std::vector<double>{1, 0, 0.5, 0}));
  EXPECT_EQ(share(smallest, 0), (std::vector<double>{1, 0, 0.5, 0}));
  EXPECT_EQ(share(smallest, 1), (std::vector<double>{0, 1, 0.5, 1}));
}

TEST(Maximum, TakesNumbersAndIntegers) {
  EXPECT_EQ(doubles(compute([](Inputs x) { return maximum(0.0, x[0]); }, {kRight})),
            (std::vector<double>{4, 2, 3, 0}));
  const Tensor x({3}, std::vector<std::int64_t>{-1LL << 50, 2, 9});
  EXPECT_EQ(compute([](Inputs in) { return minimum(in[0], 5); }, {x}),
            Tensor({3}, std::vector<std::int64_t>{-1LL << 50, 2, 5}));
}

TEST(Maximum, OrdersZerosInAnyOrder) {
  const Tensor a({2}, std::vector<float>{0.f, -0.f}), b({2}, std::vector<float>{-0.f, 0.f});
  for (const double y : doubles(compute(largest, {a, b}))) EXPECT_FALSE(std::signbit(y));
  for (const double y : doubles(compute(smallest, {a, b}))) EXPECT_TRUE(std::signbit(y));
}

TEST(Maximum, KeepsNanOfEitherSide) {
  const float nan = std::numeric_limits<float>::quiet_NaN();
  const std::vector<Tensor> x{Tensor({2}, std::vector<float>{nan, 1}),
                              Tensor({2}, std::vector<float>{1, nan})};
  for (const Builder& build : {Builder(largest), Builder(smallest)})
    for (const double y : doubles(compute(build, x))) EXPECT_TRUE(std::isnan(y));
}

TEST(Maximum, KeepsItsContractForEveryWayToRepeat) {
  const std::vector<std::pair<Shape, Shape>> shapes = {{{5, 7}, {5, 7}}, {{5, 7}, {7}},
                                                       {{7}, {5, 7}},    {{5, 7}, {}},
                                                       {{5, 1}, {1, 7}}, {{2, 3, 4}, {3, 1}}};
  for (const auto& [a, b] : shapes) {
    SCOPED_TRACE(cat(a, " and ", b));
    for (const Builder& build : {Builder(largest), Builder(smallest)})
      check_op({.build = build, .inputs = {random_values(a), random_values(b, -2, 2, 2)}});
  }
}

TEST(Maximum, RefusesShapesAndTypesThatDiffer) {
  expect_refused(largest, {{{2, 3}}, {{2, 4}}}, "shapes [2,3] and [2,4] do not fit");
  expect_refused(smallest, {{{2}, DType::kF32}, {{2}, DType::kF64}}, "cast");
  expect_refused(largest, {{{2}, DType::kBool}, {{2}, DType::kBool}}, "no arithmetic on bool");
}

}  // namespace maximum_test
}  // namespace belfry
