// Maximum and Minimum of two tensors, with broadcasting as in numpy. f32 f64 i32 i64.
#pragma once
#include "belfry/ops/operand.h"

namespace belfry {

extern const Op kMaximum;
extern const Op kMinimum;
// Floating point: 1 where a > b, 1/2 where they are equal, 0 where a < b; NaN beside NaN. It is the
// derivative of the maximum by a, and has itself no gradient.
extern const Op kAbove;

// NaN in either gives NaN; 0 is larger than -0. Where both are equal, each gets half of the
// gradient.
Output maximum(Operand a, Operand b, At at = {});
Output minimum(Operand a, Operand b, At at = {});

}  // namespace belfry
