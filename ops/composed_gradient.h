// The gradient of an op whose outputs other ops can compute, too: for ops that are differentiated
// rarely, such as gradients of fused ops.
#pragma once
#include <functional>
#include <span>
#include <vector>

#include "belfry/framework/graph/graph.h"

namespace belfry {

// For Op::gradient of an op with .missing_grads. `compose` gets the inputs of the node, and returns
// its outputs, computed by ops that have gradients; those that are not floating point may be empty.
// Returns the gradients of these outputs, which are slower than those of an own kernel, and take
// memory for all that was computed in between.
std::vector<Output> composed_gradient(
    const Node& node, std::span<const Output> grads,
    const std::function<std::vector<Output>(std::span<const Output> inputs)>& compose);

}  // namespace belfry
