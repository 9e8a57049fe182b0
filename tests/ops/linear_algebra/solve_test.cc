#include "belfry/ops/linear_algebra/solve.h"

#include <cmath>
#include <limits>

#include <gtest/gtest.h>

#include "belfry/framework/gradients/gradients.h"
#include "belfry/ops/linear_algebra/triangular_solve.h"
#include "belfry/ops/operand.h"
#include "belfry/ops/shapes/constants.h"
#include "belfry/ops/shapes/rearrange.h"
#include "belfry/tests/ops/linear_algebra/refused_runs.h"
#include "belfry/tests/support/op_test.h"

namespace belfry {
namespace solve_test {

Output solved(Inputs x) { return solve(x[0], x[1]); }
Builder solved_triangle(TriangularSolveOptions options) {
  return [options](Inputs x) { return triangular_solve(x[0], x[1], options); };
}

Tensor floats(Shape shape, std::vector<float> values) { return {std::move(shape), values}; }

// Far from singular, with pivots that are not on the diagonal.
Output regular(Output x) {
  const std::int64_t n = x.shape().back();
  return x + roll(eye(x.graph(), n, x.dtype()) * static_cast<double>(2 * n + 2), 1, 1);
}

TEST(Solve, SolvesEquations) {
  EXPECT_EQ(compute(solved, {floats({2, 2}, {0, 2, 4, 1}), floats({2, 2}, {2, 4, 5, 2})}),
            floats({2, 2}, {1, 0, 1, 2}));
}

TEST(Solve, TakesVectors) {
  EXPECT_EQ(compute(solved, {floats({2, 2}, {0, 2, 4, 1}), floats({2}, {2, 5})}),
            floats({2}, {1, 1}));
  EXPECT_EQ(compute(solved, {floats({2, 1, 1}, {2, 4}), floats({2, 1}, {6, 8})}),
            floats({2, 1}, {3, 2}));
}

TEST(Solve, TakesOneMatrixForAll) {
  EXPECT_EQ(compute(solved, {floats({2, 2}, {0, 2, 4, 1}), floats({2, 2, 1}, {2, 5, 4, 2})}),
            floats({2, 2, 1}, {1, 1, 0, 2}));
}

void check(const Builder& build, const Shape& a, const Shape& b) {
  check_op({.build = build,
            .inputs = {random_values(a), random_values(b, -1, 1, 2)},
            .f32 = 1e-5,
            .f64 = 1e-13,
            .gradient = 1e-5,
            .unknown = a.rank() > 2});
}

TEST(Solve, KeepsItsContract) {
  const Builder build = [](Inputs x) { return solve(regular(x[0]), x[1]); };
  check(build, {4, 4}, {4, 3});
  check(build, {3, 3}, {3});
  check(build, {5, 3, 3}, {5, 3, 2});
  check(build, {5, 3, 3}, {5, 3});
  check(build, {2, 3, 2, 2}, {2, 3, 2, 1});
  check(build, {7, 1, 1}, {7, 1, 2});
}

// Samples of a batch are the rows of the right sides, and there is one matrix.
TEST(Solve, KeepsItsContractWithOneMatrix) {
  check([](Inputs x) { return solve(regular(x[1]), x[0]); }, {7, 3, 2}, {3, 3});
  check([](Inputs x) { return solve(regular(x[1]), x[0]); }, {5, 2, 3, 1}, {3, 3});
}

TEST(LuSolve, KeepsItsContract) {
  const Builder twice = [](Inputs x) {
    const LuFactors a = lu_factor(regular(x[0]));
    return lu_solve(a, lu_solve(a, x[1]));
  };
  check(twice, {5, 3, 3}, {5, 3, 2});
  check(twice, {3, 3}, {3});
}

TEST(Solve, OfManyEquationsIsExact) {
  const Builder build = [](Inputs x) { return solve(regular(x[0]), x[1]); };
  check_op({.build = build,
            .inputs = {random_values({2, 90, 90}), random_values({2, 90, 5}, -1, 1, 2)},
            .f32 = 1e-5,
            .f64 = 1e-13,
            .gradient = -1});
}

TEST(Solve, OfNothingIsNothing) {
  const auto shape = [](const Shape& a, const Shape& b) {
    return compute(solved, {Tensor(a, DType::kF32), Tensor(b, DType::kF32)}).shape();
  };
  EXPECT_EQ(shape({0, 3, 3}, {0, 3, 2}), (Shape{0, 3, 2}));
  EXPECT_EQ(shape({2, 0, 0}, {2, 0, 4}), (Shape{2, 0, 4}));
}

// The factors of the forward pass serve the gradients of both inputs.
TEST(Solve, FactorisesEachMatrixOnce) {
  Graph graph;
  const Output a = placeholder(graph, "a", DType::kF32, {3, 3});
  const Output b = placeholder(graph, "b", DType::kF32, {3});
  const LuFactors factors = lu_factor(a);
  gradients(lu_solve(factors, lu_solve(factors, b)), {a, b});
  int factorisations = 0;
  for (std::size_t id = 0; id < graph.size(); ++id)
    factorisations += &graph.node(id).op() == &kLuFactor;
  EXPECT_EQ(factorisations, 1);
}

TEST(Solve, NamesTheMatrixThatIsSingular) {
  test::expect_run_refused(
      solved, {floats({2, 2, 2}, {1, 0, 0, 1, 1, 2, 2, 4}), floats({2, 2}, {1, 1, 1, 1})},
      "LuFactor", "matrix 1 of the batch is singular: pivot 2 of 2 is 0");
}

TEST(Solve, WithAMatrixThatIsNotFiniteIsNan) {
  const float nan = std::numeric_limits<float>::quiet_NaN();
  for (const bool reference : {false, true}) {
    const std::vector<double> x = doubles(
        test::run(solved, {floats({2, 2}, {nan, 0, 0, 0}), floats({2}, {1, 1})}, reference));
    EXPECT_TRUE(std::isnan(x[0]) && std::isnan(x[1]));
  }
}

TEST(Solve, RefusesOtherShapesAndTypes) {
  expect_refused(solved, {{{3}}, {{3}}}, "needs square matrices, not [3]");
  expect_refused(solved, {{{4, 3, 3}}, {{3}}},
                 "b [..., n] or [..., n, k] are needed, not f32[4,3,3] and f32[3]");
  expect_refused(solved, {{{2, 3}}, {{2, 3}}}, "needs square matrices, not [1,2,3]");
  expect_refused(solved, {{{2, 2}}, {{3, 1}}}, "do not fit right sides [1,3,1]");
  expect_refused(solved, {{{4, 2, 2}}, {{3, 2, 1}}}, "do not fit right sides [3,2,1]");
  expect_refused(solved, {{{2, 2}, DType::kF64}, {{2, 1}}}, "a and b are f64 and f32; use cast");
  expect_refused(solved, {{{2, 2}, DType::kI32}, {{2, 1}, DType::kI32}}, "takes f32 and f64");
}

TEST(TriangularSolve, ReadsOneTriangle) {
  const Tensor a = floats({2, 2}, {2, 3, 4, 5}), b = floats({2}, {4, 10});
  const auto x = [&](TriangularSolveOptions options) {
    return doubles(compute(solved_triangle(options), {a, b}));
  };
  EXPECT_EQ(x({}), (std::vector<double>{2, 0.4f}));                                  // 2 0, 4 5
  EXPECT_EQ(x({.transpose = true}), (std::vector<double>{-2, 2}));                   // 2 4, 0 5
  EXPECT_EQ(x({.upper = true}), (std::vector<double>{-1, 2}));                       // 2 3, 0 5
  EXPECT_EQ(x({.upper = true, .transpose = true}), (std::vector<double>{2, 0.8f}));  // 2 0, 3 5
}

TEST(TriangularSolve, KeepsItsContract) {
  for (const bool upper : {false, true})
    for (const bool transpose : {false, true}) {
      const TriangularSolveOptions options{.upper = upper, .transpose = transpose};
      const Builder build = [=](Inputs x) {
        const Output far = eye(x[0].graph(), x[0].shape().back(), x[0].dtype()) * 5;
        return triangular_solve(x[0] + far, x[1], options);
      };
      check(build, {3, 3}, {3});
      check(build, {5, 3, 3}, {5, 3, 2});
    }
}

TEST(TriangularSolve, NamesTheMatrixThatIsSingular) {
  test::expect_run_refused(
      solved_triangle({}),
      {floats({2, 2, 2}, {1, 0, 0, 1, 1, 2, 2, 0}), floats({2, 2}, {1, 1, 1, 1})},
      "TriangularSolve", "matrix 1 of the batch is singular: element 1 of its diagonal is 0");
}

}  // namespace solve_test
}  // namespace belfry
