// Fill: a tensor of one value, made where it is used.
#pragma once
#include "belfry/framework/graph/graph.h"

namespace belfry {

extern const Op kFill;

struct FillOptions {
  Shape shape;
  double value = 0;
  DType dtype = DType::kF32;
};

struct FillLikeOptions {
  double value = 0;
};

// shape must be known.
Output fill(Graph& graph, Shape shape, double value, DType dtype = DType::kF32, At at = {});
// A tensor of x's dtype and (run-time) shape.
extern const Op kFillLike;
Output fill_like(Output x, double value, At at = {});

}  // namespace belfry
