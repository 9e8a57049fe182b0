// Cholesky: matrices as squares of triangles.
#pragma once
#include "belfry/framework/graph/graph.h"

namespace belfry {

extern const Op kCholesky;

// The lower triangles l [..., n, n] with l l^T = a, as torch.linalg.cholesky, f32 or f64. The
// matrices are symmetric: those above the diagonal are not read, and the gradient is divided
// equally between both halves. A run fails with InvalidArgument if a matrix is not positive
// definite.
Output cholesky(Output a, At at = {});

// x where l l^T x = b, as torch.cholesky_solve. Shapes as in solve() (solve.h).
Output cholesky_solve(Output l, Output b, At at = {});

}  // namespace belfry
