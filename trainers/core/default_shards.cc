#include "belfry/trainers/core/default_shards.h"

#include <algorithm>
#include <bit>

#include "belfry/ops/conv2d.h"
#include "belfry/ops/matmul.h"
#include "belfry/ops/multiply_adds.h"

namespace belfry {
namespace {

double known(std::int64_t size) { return static_cast<double>(std::max<std::int64_t>(1, size)); }

// Forward, for one sample: dimension 0 of the output counts as 1.
double work_of_sample(const Node& node) {
  const bool counts = &node.op() == &kConv2d || &node.op() == &kMatMul;
  if (!counts || node.origin().forward) return 0;
  return multiply_adds(node) / known(node.output_type(0).shape[0]);
}

}  // namespace

ModelWork work_of(const TowerRecord& tower) {
  ModelWork work;
  for (std::size_t id = 0; id < tower.graph->size(); ++id) {
    const Node& node = tower.graph->node(id);
    if (node.origin().tower == tower.number) work.multiply_adds += work_of_sample(node);
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
  return most < 2 ? 1 : static_cast<int>(std::bit_floor(static_cast<std::uint64_t>(most)));
}

}  // namespace belfry
