#include "belfry/ops/exp.h"

#include <gtest/gtest.h>

#include "belfry/tests/support/op_test.h"

namespace belfry {
namespace exp_test {

Output built(Inputs x) { return exp(x[0]); }

TEST(Exp, HasValuesKnownByHand) {
  const std::vector<double> y =
      doubles(compute(built, {Tensor({3}, std::vector<float>{0, 1, -1})}));
  const std::vector<double> expected{1, 2.718281828459, 0.367879441171};
  for (std::size_t i = 0; i < y.size(); ++i) EXPECT_NEAR(y[i], expected[i], 3e-7) << i;
}

TEST(Exp, KeepsItsContract) {
  check_op({.build = built, .inputs = {random_values({5, 7}, -3, 3)}});
  check_op({.build = built, .inputs = {random_values({}, -3, 3, 3)}});
}

TEST(Exp, RefusesTypesItCannotCompute) {
  expect_refused(built, {{{2, 3}, DType::kI32}}, "Exp 'Exp'");
}

}  // namespace exp_test
}  // namespace belfry
