// Neg: -x.
#pragma once
#include "belfry/framework/graph/graph.h"

namespace belfry {

extern const Op kNeg;

// f32 f64 i32 i64; integers wrap.
Output neg(Output x, At at = {});

}  // namespace belfry
