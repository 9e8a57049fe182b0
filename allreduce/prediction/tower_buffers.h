// Gradients without a model, to predict or time a strategy.
#pragma once
#include <vector>

#include "belfry/allreduce/verify/gradient_table.h"

namespace belfry {

// Rows of a GradientTable. Each device has a replica of one variable per type, initially zero, and
// each variable is its own gradient.
GradientRows tower_buffers(Graph& graph, const std::vector<TensorType>& types,
                           const std::vector<DeviceSpec>& devices);

}  // namespace belfry
