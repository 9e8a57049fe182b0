#include "belfry/ops/cos.h"

#include <gtest/gtest.h>

#include "belfry/tests/support/op_test.h"

namespace belfry {
namespace cos_test {

Output built(Inputs x) { return cos(x[0]); }

TEST(Cos, HasValuesKnownByHand) {
  const std::vector<double> y =
      doubles(compute(built, {Tensor({4}, std::vector<float>{0, 1, -1, 3.1415927})}));
  const std::vector<double> expected{1, 0.540302305868, 0.540302305868, -1};
  for (std::size_t i = 0; i < y.size(); ++i) EXPECT_NEAR(y[i], expected[i], 1e-7) << i;
}

TEST(Cos, KeepsItsContract) {
  check_op({.build = built, .inputs = {random_values({5, 7}, -4, 4)}});
  check_op({.build = built, .inputs = {random_values({}, -4, 4, 3)}});
}

TEST(Cos, RefusesTypesItCannotCompute) {
  expect_refused(built, {{{2, 3}, DType::kI32}}, "Cos 'Cos'");
}

}  // namespace cos_test
}  // namespace belfry
