// AllFinite: whether all elements of tensors are finite.
#pragma once
#include <limits>

#include "belfry/framework/graph/graph.h"

namespace belfry {

extern const Op kAllFinite;

struct AllFiniteOptions {
  // The largest magnitude that counts as finite.
  double limit = std::numeric_limits<float>::max();
};

// A bool scalar: true if no element of xs is NaN or beyond the limit. xs are floating point; their
// types and shapes may differ. Throws InvalidArgument for an empty list.
Output all_finite(std::span<const Output> xs, AllFiniteOptions options = {}, At at = {});

}  // namespace belfry
