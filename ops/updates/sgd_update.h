// SgdUpdate: a step of gradient descent.
#pragma once
#include "belfry/framework/graph/graph.h"
#include "belfry/ops/scaled_gradient.h"

namespace belfry {

struct SgdUpdateOptions {
  double weight_decay = 0;  // finite, >= 0
  // 0: updates the whole variable. Else gradient and slots are rows of a part of it, and this is
  // the number of the part's first element, counted from 1. The identity of runs (run_identity.cc)
  // has the options' text, which a last option of 0 leaves as it was before there were parts.
  std::int64_t part_from = 0;
};

// variable -= rate * (gradient + weight_decay * variable), as PyTorch's. rate is a scalar; all are
// of the variable's type, f32 or f64, but the gradient's factor. Output 0 is the new value.
extern const Op kSgdUpdate;
Node& sgd_update(Variable variable, ScaledGradient gradient, Output rate,
                 SgdUpdateOptions options = {}, At at = {});

}  // namespace belfry
