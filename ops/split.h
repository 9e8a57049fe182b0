// Split: consecutive parts of a tensor.
#pragma once
#include <cstdint>
#include <initializer_list>
#include <span>
#include <vector>

#include "belfry/framework/graph/graph.h"

namespace belfry {

extern const Op kSplit;

struct SplitOptions {
  int parts = 1;
  int axis = 0;
  std::vector<std::int64_t> sizes = {};  // empty: parts are equal
};

// x in n equal parts along `axis` (negative values count from the last).
std::vector<Output> split(Output x, int n, int axis, At at = {});

// x in parts of these sizes along `axis`: split(x, {3, 4, 3}, 0). One size may be -1, for the rest.
// Throws InvalidArgument if the sizes do not add up to the dimension, or if there are none.
std::vector<Output> split(Output x, std::span<const std::int64_t> sizes, int axis, At at = {});
std::vector<Output> split(Output x, std::initializer_list<std::int64_t> sizes, int axis,
                          At at = {});

}  // namespace belfry
