// SgdUpdate: a step of gradient descent.
#pragma once
#include "belfry/framework/graph/graph.h"
#include "belfry/ops/scaled_gradient.h"
#include "belfry/ops/updates/part_from.h"

namespace belfry {

struct SgdUpdateOptions {
  double weight_decay = 0;     // finite, >= 0
  double decoupled_decay = 0;  // finite, >= 0
  PartFrom part_from = {};
};

// variable -= rate * (gradient + weight_decay * variable), as in PyTorch. Before that,
// variable -= rate * decoupled_decay * variable. rate is a scalar; everything but the gradient's
// factor has the variable's type, f32 or f64. Output 0 is the new value.
extern const Op kSgdUpdate;
Node& sgd_update(Variable variable, ScaledGradient gradient, Output rate,
                 SgdUpdateOptions options = {}, At at = {});

}  // namespace belfry
