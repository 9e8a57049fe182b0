// AddN: the canonical sum.
#pragma once
#include "belfry/framework/graph/graph.h"

namespace belfry {

extern const Op kAddN;

// The sum of tensors of one shape and dtype, as a balanced tree over their order: split at ceil(n /
// 2), left + right. A single input is returned unchanged.
Output add_n(std::span<const Output> xs, At at = {});
Output add_n(std::initializer_list<Output> xs, At at = {});

}  // namespace belfry
