#include "belfry/tests/support/parts.h"

#include <algorithm>

namespace belfry {
namespace {

std::int64_t rows(const Shape& shape) { return shape.rank() == 0 ? 1 : shape[0]; }

// Elements of output 0, or of all tensors of participant 0.
std::int64_t elements(const Node& node, std::span<const TensorType> outputs) {
  const int participants = collective_size(node);
  if (participants == 0) return outputs[0].shape.elements();
  std::int64_t sum = 0;
  for (std::size_t i = 0; i < outputs.size(); ++i)
    if (i % static_cast<std::size_t>(participants) == 0) sum += outputs[i].shape.elements();
  return sum;
}

}  // namespace

std::int64_t extent(const Node& node, std::span<const TensorType> inputs,
                    std::span<const TensorType> outputs) {
  const TensorType& first = outputs.empty() ? inputs[0] : outputs[0];
  switch (node.op().split) {
    case WorkSplit::kSerial: return 1;
    case WorkSplit::kElements:
      return outputs.empty() ? first.shape.elements() : elements(node, outputs);
    case WorkSplit::kRows: return rows(first.shape);
  }
  return 1;
}

std::vector<WorkRange> divide(std::int64_t units, std::int64_t shift, std::int64_t parts) {
  std::vector<WorkRange> ranges;
  const std::int64_t start = std::min(shift, units);
  if (start > 0) ranges.push_back({0, start});
  for (std::int64_t part = 0; part < parts; ++part) {
    const WorkRange range{start + (units - start) * part / parts,
                          start + (units - start) * (part + 1) / parts};
    if (range.size() > 0) ranges.push_back(range);
  }
  if (ranges.empty()) ranges.push_back({0, units});
  return ranges;
}

}  // namespace belfry
