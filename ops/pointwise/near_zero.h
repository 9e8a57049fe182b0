// Log1p and Expm1, which are accurate near 0, and Erf. f32 and f64.
#pragma once
#include "belfry/framework/graph/graph.h"

namespace belfry {

extern const Op kLog1p;
extern const Op kExpm1;
extern const Op kErf;

Output log1p(Output x, At at = {});  // log(1 + x)
Output expm1(Output x, At at = {});  // e^x - 1
Output erf(Output x, At at = {});    // 2 / sqrt(pi) times the integral of e^(-t^2) from 0 to x

}  // namespace belfry
