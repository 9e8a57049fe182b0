// Systems of linear equations.
#pragma once
#include "belfry/framework/graph/graph.h"

namespace belfry {

// x where a x = b, as np.linalg.solve, for a [..., n, n] and b [..., n, k], f32 or f64. Leading
// dimensions of a and b are equal, or a is one matrix for all of b. If b has one dimension less
// than a, it is vectors [..., n]. A run fails with InvalidArgument if a matrix is singular, so that
// one of its pivots is 0. Gradients use the factors of the forward pass.
Output solve(Output a, Output b, At at = {});

// Factors of matrices a [..., n, n], for several right sides that depend on each other.
struct LuFactors {
  Output factors;  // [..., n, n]; its gradient is that of a, which need not be kept
  Output pivots;   // i32 [..., n]
};
LuFactors lu_factor(Output a, At at = {});
// solve(a, b), where a has these factors.
Output lu_solve(const LuFactors& a, Output b, At at = {});

// As LAPACK sees the transpose of a row-major matrix, a = L U P, where U has ones on its diagonal,
// and L has the pivots. The other output are the columns that P exchanges, counted from 1.
extern const Op kLuFactor;
extern const Op kLuSolve;

struct LuSolveOptions {
  bool transpose = false;  // solves with the transpose of the matrix
};

}  // namespace belfry
