#include "belfry/ops/sin.h"

#include <gtest/gtest.h>

#include "belfry/tests/support/op_test.h"

namespace belfry {
namespace sin_test {

Output built(Inputs x) { return sin(x[0]); }

TEST(Sin, HasValuesKnownByHand) {
  const std::vector<double> y =
      doubles(compute(built, {Tensor({4}, std::vector<float>{0, 1, -1, 3.1415927})}));
  const std::vector<double> expected{0, 0.841470984808, -0.841470984808, -8.742278e-8};
  for (std::size_t i = 0; i < y.size(); ++i) EXPECT_NEAR(y[i], expected[i], 1e-7) << i;
}

TEST(Sin, KeepsItsContract) {
  check_op({.build = built, .inputs = {random_values({5, 7}, -4, 4)}});
  check_op({.build = built, .inputs = {random_values({}, -4, 4, 3)}});
}

TEST(Sin, RefusesTypesItCannotCompute) {
  expect_refused(built, {{{2, 3}, DType::kI32}}, "Sin 'Sin'");
}

}  // namespace sin_test
}  // namespace belfry
