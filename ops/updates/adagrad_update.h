// AdagradUpdate: a step of Adagrad (Duchi et al. 2011), in PyTorch's form.
#pragma once
#include "belfry/framework/graph/graph.h"
#include "belfry/ops/scaled_gradient.h"
#include "belfry/ops/updates/part_from.h"

namespace belfry {

struct AdagradUpdateOptions {
  double epsilon = 1e-10;
  double weight_decay = 0;     // finite, >= 0
  double decoupled_decay = 0;  // finite, >= 0
  PartFrom part_from = {};
};

// With g = gradient + weight_decay * variable:
//   variable -= rate * decoupled_decay * variable
//   square = square + g^2
//   variable -= rate * g / (sqrt(square) + epsilon)
// rate is a scalar; everything but the gradient's factor has the variable's type, f32 or f64.
// Outputs are the new values of variable and square.
extern const Op kAdagradUpdate;
Node& adagrad_update(Variable variable, Variable square, ScaledGradient gradient, Output rate,
                     AdagradUpdateOptions options = {}, At at = {});

}  // namespace belfry
