// MomentumUpdate: a step of gradient descent with momentum, as TensorFlow's and PyTorch's.
#pragma once
#include "belfry/framework/graph/graph.h"
#include "belfry/ops/scaled_gradient.h"
#include "belfry/ops/updates/part_from.h"

namespace belfry {

enum class MomentumForm { kPlain, kNesterov };

struct MomentumUpdateOptions {
  double momentum = 0.9;
  double weight_decay = 0;  // finite, >= 0
  MomentumForm form = MomentumForm::kPlain;
  double decoupled_decay = 0;  // finite, >= 0
  PartFrom part_from = {};
};

// With g = gradient + weight_decay * variable:
//   variable -= rate * decoupled_decay * variable
//   sum = momentum * sum + g
//   variable -= rate * sum                     (plain)
//   variable -= rate * (g + momentum * sum)    (Nesterov, in PyTorch's form)
// rate is a scalar; everything but the gradient's factor has the variable's type, f32 or f64.
// Outputs are the new values of variable and sum.
extern const Op kMomentumUpdate;
Node& momentum_update(Variable variable, Variable sum, ScaledGradient gradient, Output rate,
                      MomentumUpdateOptions options = {}, At at = {});

}  // namespace belfry
