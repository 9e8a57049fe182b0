// SgdUpdate: a step of gradient descent.
#pragma once
#include "belfry/framework/graph/graph.h"
#include "belfry/ops/scaled_gradient.h"

namespace belfry {

struct SgdUpdateOptions {
  double weight_decay = 0;  // finite, >= 0
  // 0: the whole variable. Else a part of it, of which gradient and slots are rows, and the number
  // of its first element, counted from 1. So 0, as a last option, leaves the text of options as it
  // was before there were parts. That text is in the identity of runs (run_identity.cc).
  std::int64_t part_from = 0;
};

// variable -= rate * (gradient + weight_decay * variable), as PyTorch's. rate is a scalar; all are
// of the variable's type, f32 or f64, but the gradient's factor. Output 0 is the new value.
extern const Op kSgdUpdate;
Node& sgd_update(Variable variable, ScaledGradient gradient, Output rate,
                 SgdUpdateOptions options = {}, At at = {});

}  // namespace belfry
