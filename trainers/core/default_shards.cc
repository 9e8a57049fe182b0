#include "belfry/trainers/core/default_shards.h"

#include <algorithm>
#include <bit>

#include "belfry/ops/conv2d.h"
#include "belfry/ops/matmul.h"

namespace belfry {
namespace {

double known(std::int64_t size) { return static_cast<double>(std::max<std::int64_t>(1, size)); }

// Of dimensions [first, last).
double product(const Shape& shape, std::size_t first, std::size_t last) {
  double result = 1;
  for (std::size_t i = first; i < last; ++i) result *= known(shape[i]);
  return result;
}

// How many rows of `out` come of one sample: several where a sample has several tokens.
double rows_of_sample(const Shape& out, std::int64_t samples) {
  if (samples <= 0 || out.rank() == 0 || out[0] <= 0 || out[0] % samples != 0) return 1;
  return static_cast<double>(out[0] / samples);
}

// For one of `samples` samples; unless their number is known, dimension 0 of the output counts
// as 1.
double multiply_adds(const Node& node, std::int64_t samples) {
  if (node.origin().forward) return 0;
  const Shape& out = node.output_type(0).shape;
  if (&node.op() == &kConv2d) {
    const Shape& filter = node.input(1).shape();
    return product(out, 1, out.rank()) * product(filter, 1, filter.rank());
  }
  if (&node.op() != &kMatMul) return 0;
  return rows_of_sample(out, samples) * product(out, 1, out.rank()) *
         known(node.input(0).shape().back());
}

}  // namespace

ModelWork work_of(const TowerRecord& tower) {
  ModelWork work;
  std::int64_t samples = kUnknown;
  if (!tower.inputs.empty() && tower.inputs[0].shape().rank() > 0)
    samples = tower.inputs[0].shape()[0];
  for (std::size_t id = 0; id < tower.graph->size(); ++id) {
    const Node& node = tower.graph->node(id);
    if (node.origin().tower == tower.number) work.multiply_adds += multiply_adds(node, samples);
  }
  for (const Variable& variable : tower.trainables)
    work.weights += static_cast<double>(variable.shape().elements());
  return work;
}

int default_shards(const ModelWork& work, std::int64_t global_batch) {
  constexpr double kSamplesPerWeight = 80;
  constexpr std::int64_t kShards = 8, kRows = 16, kMost = 256;
  const double fewest =
      std::max(1.0, kSamplesPerWeight * work.weights / std::max(1.0, work.multiply_adds));
  const double most =
      std::min(static_cast<double>(std::clamp(global_batch / kRows, kShards, kMost)),
               static_cast<double>(global_batch) / fewest);
  if (most < 2) return 1;
  // Shards of one size keep results independent of the number of devices, but too few of them leave
  // cores idle.
  const auto useful = static_cast<std::int64_t>(std::bit_floor(static_cast<std::uint64_t>(most)));
  const std::int64_t even = std::min(useful, global_batch & -global_batch);
  return static_cast<int>(2 * even >= useful ? even : useful);
}

}  // namespace belfry
