// MatMul: the product of matrices.
#pragma once
#include "belfry/framework/graph/graph.h"

namespace belfry {

// a [..., m, k], b [..., k, n] -> [..., m, n]; the leading dimensions are equal. Work is split by
// dimension 0: rows of a, or the first leading dimension.
extern const Op kMatMul;
// aT b for matrices a [k, m], b [k, n] -> [m, n]: the form of weight gradients, where k is the
// batch. It is a separate op because its parts are ranges of k, whose products are added.
extern const Op kMatMulTransposeA;

struct MatMulOptions {
  bool transpose_a = false, transpose_b = false;  // the last two dimensions
};

// op(a) op(b), f32 or f64, as numpy.matmul: leading dimensions are broadcast (broadcast_matmul.h),
// and a vector is a row on the left and a column on the right, which the result lacks. The rows of
// all matrices times one matrix are one product. Throws InvalidArgument naming both shapes if they
// do not fit.
Output matmul(Output a, Output b, MatMulOptions options = {}, At at = {});
inline Output matmul(Output a, Output b, At at) { return matmul(a, b, {}, at); }

}  // namespace belfry
