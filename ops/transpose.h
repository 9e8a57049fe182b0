// Transpose: dimensions in another order.
#pragma once
#include "belfry/framework/graph/graph.h"

namespace belfry {

extern const Op kTranspose;

struct TransposeOptions {
  std::vector<int> order;
};

// Dimension i of the result is dimension order[i] of x (negative values count from the last);
// without an order, all are reversed.
Output transpose(Output x, std::vector<int> order = {}, At at = {});

}  // namespace belfry
