// Add, Sub, Mul, Div: with broadcasting as in numpy. Shapes line up at the last dimension; a
// dimension of 1, or a missing one, is repeated. Types: f32 f64 i32 i64. Integers wrap, and their
// quotients are truncated.
#pragma once
#include "belfry/framework/graph/graph.h"

namespace belfry {

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
