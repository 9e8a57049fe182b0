// LionUpdate: a step of Lion (Chen et al. 2023, "Symbolic Discovery of Optimization Algorithms").
#pragma once
#include "belfry/framework/graph/graph.h"
#include "belfry/ops/scaled_gradient.h"
#include "belfry/ops/updates/part_from.h"

namespace belfry {

struct LionUpdateOptions {
  double beta1 = 0.9, beta2 = 0.99;  // in [0, 1)
  double weight_decay = 0;           // finite, >= 0
  double coupled_decay = 0;          // finite, >= 0
  PartFrom part_from = {};
};

// With g = gradient + coupled_decay * variable:
//   variable -= rate * weight_decay * variable
//   variable -= rate * sign(beta1 * m + (1 - beta1) * g)
//   m = beta2 * m + (1 - beta2) * g
// The sign of 0 is 0. rate is a scalar; everything but the gradient's factor has the variable's
// type, f32 or f64. Outputs are the new values of variable and m.
extern const Op kLionUpdate;
Node& lion_update(Variable variable, Variable m, ScaledGradient gradient, Output rate,
                  LionUpdateOptions options = {}, At at = {});

}  // namespace belfry
