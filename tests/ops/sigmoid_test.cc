#include "belfry/ops/sigmoid.h"

#include <gtest/gtest.h>

#include "belfry/tests/support/op_test.h"

namespace belfry {
namespace sigmoid_test {

Output built(Inputs x) { return sigmoid(x[0]); }

TEST(Sigmoid, HasValuesKnownByHand) {
  const std::vector<double> y =
      doubles(compute(built, {Tensor({4}, std::vector<float>{0, 1, -1, -100})}));
  const std::vector<double> expected{0.5, 0.731058578630, 0.268941421370, 0};
  for (std::size_t i = 0; i < y.size(); ++i) EXPECT_NEAR(y[i], expected[i], 1e-7) << i;
}

TEST(Sigmoid, KeepsItsContract) {
  check_op({.build = built, .inputs = {random_values({5, 7}, -3, 3)}});
  check_op({.build = built, .inputs = {random_values({}, -3, 3, 3)}});
}

TEST(Sigmoid, RefusesTypesItCannotCompute) {
  expect_refused(built, {{{2, 3}, DType::kI32}}, "Sigmoid 'Sigmoid'");
}

Output built_grad(Inputs x) { return sigmoid_grad(x[0], x[1]); }

TEST(SigmoidGrad, HasValuesKnownByHand) {
  EXPECT_EQ(compute(built_grad, {Tensor(6.f), Tensor(0.5f)}).item<float>(), 6 * 0.25);
}

TEST(SigmoidGrad, KeepsItsContract) {
  check_op({.build = built_grad,
            .inputs = {random_values({4, 9}, -2, 2, 1), random_values({4, 9}, 0, 1, 2)}});
}

TEST(SigmoidGrad, RefusesShapesThatDiffer) {
  expect_refused(built_grad, {{{2, 3}}, {{3, 2}}}, "have shapes [2,3] and [3,2]");
}

}  // namespace sigmoid_test
}  // namespace belfry
