// Where: elements of one of two tensors.
#pragma once
#include "belfry/ops/operand.h"

namespace belfry {

extern const Op kWhere;

// a where the condition (bool) is true, else b; all three broadcast, as in numpy. a and b have one
// type, any. Each element's gradient goes to the tensor that it came from; the other's is 0,
// whatever it holds.
Output where(Output condition, Operand a, Operand b, At at = {});

}  // namespace belfry
