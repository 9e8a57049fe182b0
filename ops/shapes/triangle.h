// Triangle: one side of a diagonal of matrices; zeros on the other.
#pragma once
#include <cstdint>

#include "belfry/framework/graph/graph.h"

namespace belfry {

extern const Op kTriangle;

struct TriangleOptions {
  bool upper = false;
  std::int64_t diagonal = 0;  // of matrices: 1 is the one above the main diagonal
};

// x [..., m, n] on and below (tril) or above (triu) a diagonal. Elements on the other side become
// zeros, whatever they are.
Output tril(Output x, std::int64_t diagonal = 0, At at = {});
Output triu(Output x, std::int64_t diagonal = 0, At at = {});

}  // namespace belfry
