#include "belfry/framework/graph/op_work.h"

#include <algorithm>
#include <vector>

namespace belfry {
double work_elements(const Shape& shape, std::size_t first) {
  double result = 1;
  for (std::size_t i = first; i < shape.rank(); ++i)
    result *= static_cast<double>(std::max<std::int64_t>(1, shape[i]));
  return result;
}

OpWork work_of(const Node& node, std::span<const TensorType> inputs,
               std::span<const TensorType> outputs) {
  return node.op().work ? node.op().work({node, inputs, outputs}) : OpWork{};
}

OpWork work_of(const Node& node) {
  std::vector<TensorType> inputs, outputs;
  for (const Output& input : node.inputs()) inputs.push_back(input.type());
  for (std::size_t i = 0; i < node.outputs(); ++i) outputs.push_back(node.output_type(i));
  return work_of(node, inputs, outputs);
}

}  // namespace belfry
