// Add, Sub, Mul, Div: with broadcasting as in numpy. Shapes line up at the last dimension; a
// dimension of 1, or a missing one, is repeated. Types: f32 f64 i32 i64. Integers wrap, and their
// quotients are truncated.
#pragma once
#include "belfry/framework/graph/graph.h"

namespace belfry {

// A tensor [n,1] with another [n] gives [n,n]: in a loss mostly a mistake, which compares each
// prediction with the targets of all samples. So that is logged as a warning, once per line. It is
// silent for n = 1, and for [n,1] with [1,n], which says that all pairs are meant.

extern const Op kAdd;
extern const Op kSub;
extern const Op kMul;
extern const Op kDiv;

Output add(Output a, Output b, At at = {});
Output sub(Output a, Output b, At at = {});
Output mul(Output a, Output b, At at = {});
// A run fails with InvalidArgument if an integer is divided by 0.
Output div(Output a, Output b, At at = {});

}  // namespace belfry
