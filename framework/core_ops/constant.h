// Const: a value fixed when the graph is built.
#pragma once
#include "belfry/framework/base/tensor.h"
#include "belfry/framework/graph/graph.h"

namespace belfry {

extern const Op kConst;

struct ConstantOptions {
  Tensor value;
};

Output constant(Graph& graph, Tensor value, At at = {});
// f32, row-major.
Output constant(Graph& graph, std::initializer_list<float> values, Shape shape, At at = {});
// A scalar.
Output constant(Graph& graph, double value, DType dtype = DType::kF32, At at = {});

// A scalar Tensor of any type. Throws InvalidArgument if an integer type cannot hold `value`
// exactly.
Tensor scalar_tensor(double value, DType dtype);

}  // namespace belfry
