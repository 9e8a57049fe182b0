// Gradients without a model, for predicting and timing what combines them.
#pragma once
#include <vector>

#include "belfry/allreduce/verify/gradient_table.h"

namespace belfry {

// Rows of a GradientTable: on each device a replica of one variable per type, zeros at first, which
// is its own gradient.
GradientRows tower_buffers(Graph& graph, const std::vector<TensorType>& types,
                           const std::vector<DeviceSpec>& devices);

}  // namespace belfry
