#include "belfry/tests/support/parts.h"

#include <algorithm>

namespace belfry {
namespace {

std::int64_t rows(const Shape& shape) { return shape.rank() == 0 ? 1 : shape[0]; }

template <class T>
void add_to(Tensor& left, const Tensor& right) {
  const auto sum = left.mutable_data<T>();
  const auto term = right.data<T>();
  for (std::size_t i = 0; i < sum.size(); ++i) sum[i] = static_cast<T>(sum[i] + term[i]);
}

// Of output 0, or of all tensors of participant 0.
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
    case WorkSplit::kRows:
    case WorkSplit::kBatch: return rows(first.shape);
    case WorkSplit::kBatchReduce: return rows(inputs[0].shape);
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

Tensor tree_sum(std::span<const Tensor> parts) {
  if (parts.size() == 1) return parts[0];
  const std::size_t middle = (parts.size() + 1) / 2;
  Tensor left = tree_sum(parts.first(middle));
  const Tensor right = tree_sum(parts.subspan(middle));
  visit_any(left.dtype(), [&]<class T>(T) { add_to<T>(left, right); });
  return left;
}

}  // namespace belfry
