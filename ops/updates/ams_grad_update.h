// AmsGradUpdate: a step of AMSGrad (Reddi et al. 2018), in the form of PyTorch's Adam with amsgrad.
#pragma once
#include "belfry/framework/graph/graph.h"
#include "belfry/ops/scaled_gradient.h"
#include "belfry/ops/updates/part_from.h"

namespace belfry {

struct AmsGradUpdateOptions {
  double beta1 = 0.9, beta2 = 0.999;
  double epsilon = 1e-8;
  double weight_decay = 0;     // finite, >= 0
  double decoupled_decay = 0;  // finite, >= 0
  PartFrom part_from = {};
};

// With t = step, a scalar i64 that counts updates from 1, and g = gradient + weight_decay *
// variable:
//   variable -= rate * decoupled_decay * variable
//   m = beta1 * m + (1 - beta1) * g
//   v = beta2 * v + (1 - beta2) * g^2
//   most = max(most, v)
//   variable -= rate / (1 - beta1^t) * m / (sqrt(most / (1 - beta2^t)) + epsilon)
// rate is a scalar; everything but the step and the gradient's factor has the variable's type, f32
// or f64. Outputs are the new values of variable, m, v and most. A run fails with InvalidArgument
// if t < 1, unless the factor is 0.
extern const Op kAmsGradUpdate;
Node& ams_grad_update(Variable variable, Variable m, Variable v, Variable most, Output step,
                      ScaledGradient gradient, Output rate, AmsGradUpdateOptions options = {},
                      At at = {});

}  // namespace belfry
