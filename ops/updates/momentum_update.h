// MomentumUpdate: a step of gradient descent with momentum, as TensorFlow's.
#pragma once
#include "belfry/framework/graph/graph.h"
#include "belfry/ops/scaled_gradient.h"

namespace belfry {

struct MomentumUpdateOptions {
  double momentum = 0.9;
};

// sum = momentum * sum + gradient; variable -= rate * sum. rate is a scalar; all are of the
// variable's type, f32 or f64, but the gradient's factor. Outputs are the new values of variable
// and sum.
extern const Op kMomentumUpdate;
Node& momentum_update(Variable variable, Variable sum, ScaledGradient gradient, Output rate,
                      MomentumUpdateOptions options = {}, At at = {});

}  // namespace belfry
