// Gradients and updates under loss scaling.
#pragma once
#include "belfry/framework/graph/node.h"

namespace belfry {

// Both tensors, or neither: they are empty if the loss is not scaled.
struct Unscaling {
  Output factor = {};   // scalar f32: 1 / scale, or 0 to write nothing
  Output applied = {};  // scalar i64: 1, or 0 for an update that is skipped
};

// The gradient that an update takes, and its factor. If the factor is 0 the update writes nothing:
// the bits of variables and slots stay, whatever the gradient holds.
struct ScaledGradient {
  ScaledGradient(Output gradient, Output times = {})  // NOLINT
      : value(gradient), factor(times) {}

  Output value;
  Output factor;  // empty: 1
};

}  // namespace belfry
