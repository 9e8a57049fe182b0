#include "belfry/ops/log.h"

#include <gtest/gtest.h>

#include "belfry/tests/support/op_test.h"

namespace belfry {
namespace log_test {

Output built(Inputs x) { return log(x[0]); }

TEST(Log, HasValuesKnownByHand) {
  const std::vector<double> y =
      doubles(compute(built, {Tensor({3}, std::vector<float>{1, 2.7182818, 0.5})}));
  const std::vector<double> expected{0, 1, -0.693147180560};
  for (std::size_t i = 0; i < y.size(); ++i) EXPECT_NEAR(y[i], expected[i], 1e-7) << i;
}

TEST(Log, KeepsItsContract) {
  check_op({.build = built, .inputs = {random_values({5, 7}, 0.5, 3)}});
  check_op({.build = built, .inputs = {random_values({}, 0.5, 3, 3)}});
}

TEST(Log, RefusesTypesItCannotCompute) {
  expect_refused(built, {{{2, 3}, DType::kI32}}, "Log 'Log'");
}

}  // namespace log_test
}  // namespace belfry
