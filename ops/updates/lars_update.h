// LarsUpdate: a step of LARS, for large batches (You, Gitman and Ginsburg 2017, "Large Batch
// Training of Convolutional Networks").
#pragma once
#include "belfry/framework/graph/graph.h"
#include "belfry/ops/scaled_gradient.h"
#include "belfry/ops/updates/momentum_update.h"
#include "belfry/ops/updates/part_from.h"

namespace belfry {

struct LarsUpdateOptions {
  double momentum = 0.9;
  double coefficient = 1e-3;  // the trust coefficient: finite, > 0
  double epsilon = 0;
  double weight_decay = 0;  // finite, >= 0
  MomentumForm form = MomentumForm::kPlain;
  PartFrom part_from = {};
};

// With the norms of the variable and of its gradient, f64 scalars (global_norm.h):
//   ratio = coefficient * variable_norm / (gradient_norm + weight_decay * variable_norm + epsilon)
//   g = ratio * (gradient + weight_decay * variable)
//   sum = momentum * sum + g
//   variable -= rate * sum                     (plain)
//   variable -= rate * (g + momentum * sum)    (Nesterov)
// The ratio is 1 if one of the norms is 0. The gradient's factor, which is not negative, counts in
// its norm, too: gradient_norm is the norm before it. rate is a scalar; everything but norms and
// factor has the variable's type, f32 or f64. Outputs are the new values of variable and sum.
//
// With a constant rate these are the steps of the paper, which has the rate inside the sum. Outside
// of it, as in PyTorch's SGD, a changing rate applies at once.
extern const Op kLarsUpdate;
Node& lars_update(Variable variable, Variable sum, Output variable_norm, Output gradient_norm,
                  ScaledGradient gradient, Output rate, LarsUpdateOptions options = {}, At at = {});

}  // namespace belfry
