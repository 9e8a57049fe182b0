#include "belfry/framework/graph/op_work.h"

#include <algorithm>
#include <vector>

namespace belfry {

std::int64_t rows_of_product_part(const Shape& product) {
  constexpr std::int64_t kRows = 128, kMostParts = 16, kFewest = 16, kColumns = 64;
  const std::int64_t rows = product.rank() == 0 ? 1 : std::max<std::int64_t>(1, product[0]);
  if (product.rank() != 2 || product[1] < kColumns) return rows;
  const std::int64_t part = std::max(kRows, (rows / kMostParts + kRows - 1) / kRows * kRows);
  const std::int64_t last = rows % part;
  return part < rows && (last == 0 || last >= kFewest) ? part : rows;
}

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
