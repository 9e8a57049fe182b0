// How the work of a node is divided.
#pragma once
#include <span>
#include <vector>

#include "belfry/framework/base/tensor.h"
#include "belfry/framework/graph/node.h"

namespace belfry {

// How many units the work of a node has, by its op's WorkSplit.
std::int64_t extent(const Node& node, std::span<const TensorType> inputs,
                    std::span<const TensorType> outputs);

// [0, units) cut after `shift` units, and the rest into `parts`. No part is empty, unless there are
// no units at all.
std::vector<WorkRange> divide(std::int64_t units, std::int64_t shift, std::int64_t parts);

}  // namespace belfry
