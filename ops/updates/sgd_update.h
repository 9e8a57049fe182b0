// SgdUpdate: a step of gradient descent.
#pragma once
#include "belfry/framework/graph/graph.h"
#include "belfry/ops/scaled_gradient.h"

namespace belfry {

// variable -= rate * gradient. rate is a scalar; all are of the variable's type, f32 or f64, but
// the gradient's factor. Output 0 is the new value.
extern const Op kSgdUpdate;
Node& sgd_update(Variable variable, ScaledGradient gradient, Output rate, At at = {});

}  // namespace belfry
