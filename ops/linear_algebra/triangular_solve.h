// TriangularSolve: systems of equations whose matrix is a triangle.
#pragma once
#include "belfry/framework/graph/graph.h"

namespace belfry {

extern const Op kTriangularSolve;

struct TriangularSolveOptions {
  bool upper = false;      // reads a on and above its diagonal, not on and below
  bool transpose = false;  // solves with the transpose of that triangle
};

// x where a x = b, as torch.linalg.solve_triangular. Shapes and types as in solve() (solve.h). A
// run fails with InvalidArgument if the diagonal of a matrix has a zero.
Output triangular_solve(Output a, Output b, TriangularSolveOptions options = {}, At at = {});

}  // namespace belfry
