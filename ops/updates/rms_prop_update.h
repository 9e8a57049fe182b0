// RmsPropUpdate: a step of RMSprop (Hinton 2012), not centred, in PyTorch's form.
#pragma once
#include "belfry/framework/graph/graph.h"
#include "belfry/ops/scaled_gradient.h"
#include "belfry/ops/updates/part_from.h"

namespace belfry {

struct RmsPropUpdateOptions {
  double alpha = 0.99;  // in [0, 1]
  double epsilon = 1e-8;
  double momentum = 0;
  double weight_decay = 0;     // finite, >= 0
  double decoupled_decay = 0;  // finite, >= 0
  PartFrom part_from = {};
};

// With g = gradient + weight_decay * variable:
//   variable -= rate * decoupled_decay * variable
//   square = alpha * square + (1 - alpha) * g^2
//   sum = momentum * sum + g / (sqrt(square) + epsilon)
//   variable -= rate * sum
// rate is a scalar; everything but the gradient's factor has the variable's type, f32 or f64.
// Outputs are the new values of variable, square and sum.
extern const Op kRmsPropUpdate;
Node& rms_prop_update(Variable variable, Variable square, Variable sum, ScaledGradient gradient,
                      Output rate, RmsPropUpdateOptions options = {}, At at = {});

}  // namespace belfry
