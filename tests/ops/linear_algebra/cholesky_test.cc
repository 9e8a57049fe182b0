#include "belfry/ops/linear_algebra/cholesky.h"

#include <cmath>
#include <limits>

#include <gtest/gtest.h>

#include "belfry/ops/linear_algebra/triangular_solve.h"
#include "belfry/ops/matmul.h"
#include "belfry/ops/operand.h"
#include "belfry/ops/shapes/constants.h"
#include "belfry/tests/ops/linear_algebra/refused_runs.h"
#include "belfry/tests/support/op_test.h"

namespace belfry {
namespace cholesky_test {

Output factors(Inputs x) { return cholesky(x[0]); }

// Positive definite matrices of any x [..., n, m]: x x^T + n I.
Output positive(Output x) {
  const std::int64_t n = x.shape()[x.shape().rank() - 2];
  return matmul(x, x, {.transpose_b = true}) +
         eye(x.graph(), n, x.dtype()) * static_cast<double>(n);
}

TEST(Cholesky, IsTheRootOfAMatrix) {
  const Tensor a({3, 3}, std::vector<float>{4, 12, -16, 12, 37, -43, -16, -43, 98});
  const Tensor l({3, 3}, std::vector<float>{2, 0, 0, 6, 1, 0, -8, 5, 3});
  EXPECT_EQ(compute(factors, {a}), l);
}

TEST(Cholesky, DoesNotReadAboveTheDiagonal) {
  const float nan = std::numeric_limits<float>::quiet_NaN();
  EXPECT_EQ(compute(factors, {Tensor({2, 2}, std::vector<float>{4, nan, 2, 5})}),
            Tensor({2, 2}, std::vector<float>{2, 0, 1, 2}));
}

TEST(Cholesky, KeepsItsContract) {
  // Without a check of NaN in all elements, as those above the diagonal are always 0.
  const auto check = [](const Shape& x, double gradient = 1e-5) {
    check_op({.build = [](Inputs xs) { return cholesky(positive(xs[0])); },
              .inputs = {random_values(x)},
              .f32 = 1e-5,
              .gradient = gradient,
              .nan = false,
              .unknown = x.rank() > 2});
  };
  check({3, 4, 5});
  check({2, 3, 2, 2});
  check({5, 5});
  check({7, 1, 1});
  check({2, 70, 70}, -1);
}

TEST(Cholesky, OfNothingIsNothing) {
  EXPECT_EQ(compute(factors, {Tensor({0, 3, 3}, DType::kF32)}).shape(), (Shape{0, 3, 3}));
  EXPECT_EQ(compute(factors, {Tensor({2, 0, 0}, DType::kF32)}).shape(), (Shape{2, 0, 0}));
}

TEST(Cholesky, NamesTheMatrixThatIsNotPositiveDefinite) {
  for (const DType dtype : {DType::kF32, DType::kF64})
    test::expect_run_refused(
        factors, {to(Tensor({2, 2, 2}, std::vector<float>{1, 0, 0, 1, 1, 2, 2, 1}), dtype)},
        "Cholesky", "matrix 1 of the batch is not positive definite: its first 2 rows");
}

// So that training skips the step, or stops, as after any other number that is not finite.
TEST(Cholesky, OfAMatrixThatIsNotFiniteIsNan) {
  for (const float bad :
       {std::numeric_limits<float>::quiet_NaN(), std::numeric_limits<float>::infinity()})
    for (const bool reference : {false, true}) {
      const Tensor a({2, 2, 2}, std::vector<float>{4, 0, 2, 5, 1, 0, bad, 1});
      const std::vector<double> l = doubles(test::run(factors, {a}, reference));
      EXPECT_EQ(std::vector(l.begin(), l.begin() + 4), (std::vector<double>{2, 0, 1, 2}));
      EXPECT_TRUE(l[5] == 0 && std::isnan(l[6]) && std::isnan(l[7])) << bad;
    }
}

TEST(Cholesky, RefusesOtherShapesAndTypes) {
  expect_refused(factors, {{{4}}}, "matrices [..., n, n] are needed, not f32[4]");
  expect_refused(factors, {{{2, 3}}}, "needs square matrices, not [1,2,3]");
  expect_refused(factors, {{{2, 2}, DType::kBF16}}, "takes f32 and f64, not bf16; use cast");
}

TEST(CholeskySolve, SolvesWithTheMatrixItself) {
  const Builder solved = [](Inputs x) { return cholesky_solve(cholesky(x[0]), x[1]); };
  const Tensor a({2, 2}, std::vector<float>{4, 2, 2, 5});
  EXPECT_EQ(compute(solved, {a, Tensor({2}, std::vector<float>{8, 12})}),
            Tensor({2}, std::vector<float>{1, 2}));
  check_op({.build = [](Inputs x) { return cholesky_solve(cholesky(positive(x[0])), x[1]); },
            .inputs = {random_values({3, 4, 5}), random_values({3, 4, 2}, -1, 1, 2)},
            .f32 = 1e-5,
            .f64 = 1e-12,
            .gradient = 1e-5});
}

}  // namespace cholesky_test
}  // namespace belfry
