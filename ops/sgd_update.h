// SgdUpdate: a step of gradient descent.
#pragma once
#include "belfry/framework/graph.h"

namespace belfry {

// variable -= rate * gradient. rate is a scalar; all are of the variable's type, f32 or f64. Output
// 0 is the new value.
extern const Op kSgdUpdate;
Node& sgd_update(Variable variable, Output gradient, Output rate, At at = {});

}  // namespace belfry
