// Pow: x^y, with broadcasting as in numpy. f32 and f64.
#pragma once
#include "belfry/ops/operand.h"

namespace belfry {

extern const Op kPow;

// Special values are as in C: x^0 and 1^y are 1, even beside NaN; a negative x has only integer
// powers. Powers that have an exact representation are exact. Gradients are as in PyTorch: that of
// x is 0 where y is 0, and that of y is 0 where x is 0 and y is not negative.
// Numbers 0 to 4, 1/2 and -1 as y become products, a square root and a quotient.
Output pow(Operand x, Operand y, At at = {});

}  // namespace belfry
