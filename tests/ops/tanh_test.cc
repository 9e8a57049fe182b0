#include "belfry/ops/tanh.h"

#include <gtest/gtest.h>

#include "belfry/tests/support/op_test.h"

namespace belfry {
namespace tanh_test {

Output built(Inputs x) { return tanh(x[0]); }

TEST(Tanh, HasValuesKnownByHand) {
  const std::vector<double> y =
      doubles(compute(built, {Tensor({4}, std::vector<float>{0, 1, -1, 20})}));
  const std::vector<double> expected{0, 0.761594155956, -0.761594155956, 1};
  for (std::size_t i = 0; i < y.size(); ++i) EXPECT_NEAR(y[i], expected[i], 1e-7) << i;
}

TEST(Tanh, KeepsItsContract) {
  check_op({.build = built, .inputs = {random_values({5, 7}, -3, 3)}});
  check_op({.build = built, .inputs = {random_values({}, -3, 3, 3)}});
}

TEST(Tanh, RefusesTypesItCannotCompute) {
  expect_refused(built, {{{2, 3}, DType::kI32}}, "Tanh 'Tanh'");
}

Output built_grad(Inputs x) { return tanh_grad(x[0], x[1]); }

TEST(TanhGrad, HasValuesKnownByHand) {
  EXPECT_EQ(compute(built_grad, {Tensor(6.f), Tensor(0.5f)}).item<float>(), 6 * (1 - 0.25));
}

TEST(TanhGrad, KeepsItsContract) {
  check_op({.build = built_grad,
            .inputs = {random_values({4, 9}, -2, 2, 1), random_values({4, 9}, 0, 1, 2)}});
}

TEST(TanhGrad, RefusesShapesThatDiffer) {
  expect_refused(built_grad, {{{2, 3}}, {{3, 2}}}, "have shapes [2,3] and [3,2]");
}

}  // namespace tanh_test
}  // namespace belfry
