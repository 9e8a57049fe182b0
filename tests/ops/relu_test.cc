#include "belfry/ops/relu.h"

#include <cmath>
#include <limits>

#include <gtest/gtest.h>

#include "belfry/tests/support/op_test.h"

namespace belfry {
namespace relu_test {

Output built(Inputs x) { return relu(x[0]); }

TEST(Relu, HasValuesKnownByHand) {
  EXPECT_EQ(doubles(compute(built, {Tensor({3}, std::vector<float>{-2, 0, 3})})),
            (std::vector<double>{0, 0, 3}));
}

TEST(Relu, KeepsItsContract) {
  check_op({.build = built, .inputs = {random_values({5, 7}, 0.5, 2)}});
  check_op({.build = built, .inputs = {random_values({}, 0.5, 2, 3)}});
}

TEST(Relu, RefusesTypesItCannotCompute) {
  expect_refused(built, {{{2, 3}, DType::kI32}}, "Relu 'Relu'");
}

Output built_grad(Inputs x) { return relu_grad(x[0], x[1]); }

TEST(ReluGrad, PassesWhereTheOutputIsPositive) {
  EXPECT_EQ(doubles(compute(built_grad, {Tensor({3}, std::vector<float>{5, 6, 7}),
                                         Tensor({3}, std::vector<float>{0, 2, 0})})),
            (std::vector<double>{0, 6, 0}));
}

TEST(ReluGrad, KeepsItsContract) {
  check_op({.build = built_grad,
            .inputs = {random_values({4, 9}, -2, 2, 1), random_values({4, 9}, -2, 2, 2)}});
}

TEST(ReluGrad, KeepsNanInEitherArgument) {
  const float nan = std::numeric_limits<float>::quiet_NaN();
  const std::vector<double> dx =
      doubles(compute(built_grad, {Tensor({4}, std::vector<float>{nan, nan, 1, 1}),
                                   Tensor({4}, std::vector<float>{0, 1, nan, 0})}));
  EXPECT_TRUE(std::isnan(dx[0]) && std::isnan(dx[1]) && std::isnan(dx[2]));
  EXPECT_EQ(dx[3], 0);
}

TEST(ReluGrad, RefusesShapesThatDiffer) {
  expect_refused(built_grad, {{{2, 3}}, {{3, 2}}}, "have shapes [2,3] and [3,2]");
}

TEST(Relu, KeepsItsContractForNegativeInputs) {
  check_op({.build = built, .inputs = {random_values({33}, -2, -0.5)}});
}

}  // namespace relu_test
}  // namespace belfry
