// AllFinite: whether tensors hold numbers alone.
#pragma once
#include <limits>

#include "belfry/framework/graph/graph.h"

namespace belfry {

extern const Op kAllFinite;

struct AllFiniteOptions {
  // The largest magnitude that counts as finite.
  double limit = std::numeric_limits<float>::max();
};

// A bool scalar: no element of xs, which are floating point and not all of one type or shape, is
// NaN or beyond the limit. Throws InvalidArgument for an empty list.
Output all_finite(std::span<const Output> xs, AllFiniteOptions options = {}, At at = {});

}  // namespace belfry
