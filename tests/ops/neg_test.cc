#include "belfry/ops/neg.h"

#include <gtest/gtest.h>

#include "belfry/tests/support/op_test.h"

namespace belfry {
namespace neg_test {

Output built(Inputs x) { return neg(x[0]); }

TEST(Neg, HasValuesKnownByHand) {
  EXPECT_EQ(doubles(compute(built, {Tensor({3}, std::vector<float>{0.5, -1.5, 3})})),
            (std::vector<double>{-0.5, 1.5, -3}));
}

TEST(Neg, KeepsItsContract) {
  check_op({.build = built, .inputs = {random_values({5, 7}, -2, 2)}});
  check_op({.build = built, .inputs = {random_values({}, -2, 2, 3)}});
}

TEST(Neg, RefusesTypesItCannotCompute) {
  expect_refused(built, {{{2, 3}, DType::kBool}}, "Neg 'Neg'");
}

TEST(Neg, TakesIntegers) {
  EXPECT_EQ(compute(built, {Tensor({2}, std::vector<std::int64_t>{5, -7})}),
            Tensor({2}, std::vector<std::int64_t>{-5, 7}));
}

}  // namespace neg_test
}  // namespace belfry
