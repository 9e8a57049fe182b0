#include "belfry/ops/square.h"

#include <gtest/gtest.h>

#include "belfry/tests/support/op_test.h"

namespace belfry {
namespace square_test {

Output built(Inputs x) { return square(x[0]); }

TEST(Square, HasValuesKnownByHand) {
  EXPECT_EQ(doubles(compute(built, {Tensor({3}, std::vector<float>{0, -1.5, 3})})),
            (std::vector<double>{0, 2.25, 9}));
}

TEST(Square, KeepsItsContract) {
  check_op({.build = built, .inputs = {random_values({5, 7}, -2, 2)}});
  check_op({.build = built, .inputs = {random_values({}, -2, 2, 3)}});
}

TEST(Square, RefusesTypesItCannotCompute) {
  expect_refused(built, {{{2, 3}, DType::kI32}}, "Square 'Square'");
}

}  // namespace square_test
}  // namespace belfry
