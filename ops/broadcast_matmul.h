// BroadcastMatMul: products of matrices of different batches. Built by matmul() (matmul.h).
#pragma once
#include "belfry/framework/graph/op.h"

namespace belfry {

// a [..., m, k], b [..., k, n], whose leading dimensions are broadcast as in NumPy. No matrix is
// copied for that.
extern const Op kBroadcastMatMul;

}  // namespace belfry
