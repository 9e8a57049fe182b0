// Split: equal parts of a tensor.
#pragma once
#include "belfry/framework/graph.h"

namespace belfry {

extern const Op kSplit;

struct SplitOptions {
  int parts = 1;
  int axis = 0;
};

// x in n equal parts along `axis` (negative ones count from the last).
std::vector<Output> split(Output x, int n, int axis, At at = {});

}  // namespace belfry
