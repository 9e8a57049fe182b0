#include "belfry/ops/sqrt.h"

#include <gtest/gtest.h>

#include "belfry/tests/support/op_test.h"

namespace belfry {
namespace sqrt_test {

Output built(Inputs x) { return sqrt(x[0]); }

TEST(Sqrt, HasValuesKnownByHand) {
  EXPECT_EQ(doubles(compute(built, {Tensor({4}, std::vector<float>{0, 1, 9, 2.25})})),
            (std::vector<double>{0, 1, 3, 1.5}));
}

TEST(Sqrt, KeepsItsContract) {
  check_op({.build = built, .inputs = {random_values({5, 7}, 0.5, 3)}});
  check_op({.build = built, .inputs = {random_values({}, 0.5, 3, 3)}});
}

TEST(Sqrt, RefusesTypesItCannotCompute) {
  expect_refused(built, {{{2, 3}, DType::kI32}}, "Sqrt 'Sqrt'");
}

}  // namespace sqrt_test
}  // namespace belfry
