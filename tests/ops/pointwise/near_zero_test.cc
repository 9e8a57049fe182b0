#include "belfry/ops/pointwise/near_zero.h"

#include <gtest/gtest.h>

#include "belfry/tests/support/op_test.h"

namespace belfry {
namespace near_zero_test {

using Function = Output (*)(Output, At);

Builder of(Function op) {
  return [op](Inputs x) { return op(x[0], {}); };
}

double at(Function op, double x) { return compute(of(op), {Tensor(x)}).item<double>(); }

TEST(Log1p, HasValuesOfTables) {
  EXPECT_EQ(at(log1p, 0), 0);
  EXPECT_NEAR(at(log1p, 1), 0.69314718055994531, 2e-16);
  EXPECT_NEAR(at(log1p, -0.5), -0.69314718055994531, 2e-16);
  EXPECT_EQ(at(log1p, 1e-20), 1e-20);
}

TEST(Expm1, HasValuesOfTables) {
  EXPECT_EQ(at(expm1, 0), 0);
  EXPECT_NEAR(at(expm1, 1), 1.7182818284590452, 4e-16);
  EXPECT_EQ(at(expm1, -1e-20), -1e-20);
  EXPECT_EQ(at(expm1, -100), -1);
}

TEST(Erf, HasValuesOfTables) {
  EXPECT_EQ(at(erf, 0), 0);
  EXPECT_NEAR(at(erf, 0.5), 0.52049987781304654, 2e-16);
  EXPECT_NEAR(at(erf, -1), -0.84270079294971487, 2e-16);
  EXPECT_EQ(at(erf, 10), 1);
}

TEST(NearZero, KeepsItsContract) {
  for (const double width : {1e-3, 2.0}) {
    check_op({.build = of(expm1), .inputs = {random_values({5, 7}, -width, width)}});
    check_op({.build = of(erf), .inputs = {random_values({5, 7}, -width, width)}});
  }
  check_op({.build = of(log1p), .inputs = {random_values({5, 7}, -1e-3, 1e-3)}});
  check_op({.build = of(log1p), .inputs = {random_values({5, 7}, -0.9, 3)}, .gradient = 1e-5});
}

TEST(NearZero, RefusesIntegers) {
  expect_refused(of(log1p), {{{2}, DType::kI32}}, "Log1p");
  expect_refused(of(expm1), {{{2}, DType::kI32}}, "Expm1");
  expect_refused(of(erf), {{{2}, DType::kI32}}, "Erf");
}

}  // namespace near_zero_test
}  // namespace belfry
