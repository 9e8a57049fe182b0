// Concat and its parts.
#pragma once
#include "belfry/framework/graph/graph.h"

namespace belfry {

extern const Op kConcat;
extern const Op kConcatGrad;

struct ConcatOptions {
  int axis = 0;
};

struct ConcatGradOptions {
  int axis = 0;
  int part = 0;
};

// Tensors of one dtype, one after the other along `axis` (negative values count from the last);
// their other dimensions are equal. A single tensor is returned unchanged.
Output concat(std::span<const Output> xs, int axis, At at = {});
Output concat(std::initializer_list<Output> xs, int axis, At at = {});

}  // namespace belfry
