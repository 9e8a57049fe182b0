// Swish, an op outside the tree, with an option: x * sigmoid(beta x). nvcc compiles this header,
// too, so it does not include belfry.h: nvcc refuses the headers for training.
#pragma once
#include "belfry/framework/graph/graph.h"
#include "belfry/framework/kernels/math.h"

// The fields are printed and compared as they are.
struct SwishOptions {
  double beta = 1;
};

extern const belfry::Op kSwish;
// f16 bf16 f32 f64. Throws InvalidArgument unless beta is finite and above 0.
belfry::Output swish(belfry::Output x, SwishOptions options = {}, belfry::At at = {});

// One element, for hosts and GPUs. math::exp has the same bits on both.
struct SwishElement {
  double beta;
  template <class T>
  BELFRY_HD T operator()(T x) const {
    return x / (1 + belfry::math::exp(-static_cast<T>(beta) * x));
  }
};
