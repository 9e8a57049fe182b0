#include "belfry/trainers/core/default_shards.h"

#include <algorithm>
#include <bit>
#include <map>

#include "belfry/framework/core_ops/placeholder.h"
#include "belfry/framework/graph/op_work.h"

namespace belfry {
namespace {

// The nodes that a loss is made of, with the shapes that a batch of `samples` samples gives.
class LossWork {
 public:
  LossWork(const TowerRecord& tower, std::int64_t samples) : tower_(tower), samples_(samples) {}

  OpWork sum() {
    OpWork sum;
    const std::vector<char> needed = needed_nodes();
    for (std::size_t id = 0; id < needed.size(); ++id) {
      if (!needed[id]) continue;
      const OpWork work = visit(tower_.graph->node(id));
      sum.multiply_adds += work.multiply_adds;
      sum.rereads += work.rereads;
    }
    return sum;
  }

 private:
  struct Made {
    std::vector<TensorType> types;
    bool of_samples = false;  // follows from what is fed
  };

  std::vector<char> needed_nodes() const {
    std::vector<char> needed(tower_.graph->size());
    std::vector<const Node*> open{&tower_.loss.node()};
    while (!open.empty()) {
      const Node* const node = open.back();
      open.pop_back();
      if (std::exchange(needed[static_cast<std::size_t>(node->id())], 1)) continue;
      for (const Output& input : node->inputs()) open.push_back(&input.node());
    }
    return needed;
  }

  OpWork visit(const Node& node) {
    Made made;
    std::vector<TensorType> inputs;
    for (const Output& input : node.inputs()) {
      const Made& from = made_.at(input.node().id());
      inputs.push_back(from.types[static_cast<std::size_t>(input.index())]);
      made.of_samples = made.of_samples || from.of_samples;
    }
    if (&node.op() == &kPlaceholder) {
      Shape shape = node.output_type(0).shape;
      made.of_samples = shape.rank() > 0;
      for (std::size_t i = 0; i < shape.rank(); ++i)
        if (shape[i] == kUnknownSize) shape[i] = samples_;
      made.types = {{shape, node.output_type(0).dtype}};
    } else {
      made.types = infer_types(node, inputs);
    }
    const bool counts = made.of_samples && node.origin().call == tower_.call;
    const OpWork work = counts ? work_of(node, inputs, made.types) : OpWork{};
    made_.emplace(node.id(), std::move(made));
    return work;
  }

  const TowerRecord& tower_;
  std::int64_t samples_;
  std::map<int, Made> made_;  // by the id of the node
};

}  // namespace

ModelWork work_of(const TowerRecord& tower, std::int64_t samples,
                  const std::set<std::string, std::less<>>& frozen) {
  samples = std::max<std::int64_t>(1, samples);
  const OpWork of_batch = LossWork(tower, samples).sum();
  ModelWork work{.multiply_adds = of_batch.multiply_adds / static_cast<double>(samples),
                 .rereads = of_batch.rereads};
  for (const Variable& variable : tower.variables)
    if (variable.trainable() || frozen.contains(variable.logical_name()))
      work.weights += static_cast<double>(variable.shape().elements());
  return work;
}

int default_shards(const ModelWork& work, std::int64_t global_batch) {
  constexpr double kSamplesPerWeight = 80, kSamplesPerWeightOfTwo = 8, kWeightsPerReread = 1. / 8;
  constexpr std::int64_t kShards = 8, kRows = 16, kMost = 256, kDevices = 4;
  const double weights =
      (work.weights + kWeightsPerReread * work.rereads) / std::max(1.0, work.multiply_adds);
  const double fewest = std::max(1.0, kSamplesPerWeight * weights);
  const double most =
      std::min(static_cast<double>(std::clamp(global_batch / kRows, kShards, kMost)),
               static_cast<double>(global_batch) / fewest);
  const auto useful = static_cast<std::int64_t>(std::bit_floor(static_cast<std::uint64_t>(most)));
  const std::int64_t alike = global_batch & -global_batch;  // shards of one size
  const std::int64_t even = std::min(useful, alike);
  const std::int64_t shards = 2 * even >= useful ? even : useful;
  const bool two_pay =
      static_cast<double>(global_batch) >= 2 * std::max(1.0, kSamplesPerWeightOfTwo * weights);
  return static_cast<int>(
      std::max({shards, std::min(kDevices, alike), std::int64_t{two_pay ? 2 : 1}}));
}

}  // namespace belfry
