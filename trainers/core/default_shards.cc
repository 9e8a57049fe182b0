#include "belfry/trainers/core/default_shards.h"

#include <algorithm>
#include <bit>
#include <map>

#include "belfry/framework/core_ops/placeholder.h"
#include "belfry/ops/attention/attention.h"
#include "belfry/ops/broadcast_matmul.h"
#include "belfry/ops/convolution/conv2d.h"
#include "belfry/ops/matmul.h"

namespace belfry {
namespace {

// The nodes that a loss is made of, with the shapes that a batch of `samples` samples gives.
class LossWork {
 public:
  LossWork(const TowerRecord& tower, std::int64_t samples) : tower_(tower), samples_(samples) {}

  double multiply_adds() {
    double sum = 0;
    const std::vector<char> needed = needed_nodes();
    for (std::size_t id = 0; id < needed.size(); ++id)
      if (needed[id]) sum += visit(tower_.graph->node(id));
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

  double visit(const Node& node) {
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
    const double sum = counts ? of_node(node, inputs, made.types[0].shape) : 0;
    made_.emplace(node.id(), std::move(made));
    return sum;
  }

  // The product of dimensions [first, last).
  static double product(const Shape& shape, std::size_t first, std::size_t last) {
    double result = 1;
    for (std::size_t i = first; i < last; ++i) result *= static_cast<double>(shape[i]);
    return result;
  }

  // The elements of an output that belong to one sample. Dimension 0 has rows of each sample, or it
  // is none of samples.
  double elements(const Shape& out) const {
    const std::int64_t rows = out[0] % samples_ == 0 ? out[0] / samples_ : 1;
    return static_cast<double>(rows) * product(out, 1, out.rank());
  }

  double of_node(const Node& node, std::span<const TensorType> inputs, const Shape& out) const {
    // Each element of the smaller images meets a filter of one channel.
    const bool transposed = &node.op() == &kConv2dGradInput;
    if (&node.op() == &kConv2d || transposed) {
      const Shape& filter = inputs[1].shape;
      return elements(transposed ? inputs[0].shape : out) * product(filter, 1, filter.rank());
    }
    if (&node.op() == &kMatMul) return elements(out) * static_cast<double>(inputs[0].shape.back());
    if (&node.op() == &kBroadcastMatMul) {
      const Shape& a = inputs[0].shape;
      const bool by_rows = node.options<MatMulOptions>().transpose_a;
      return elements(out) * static_cast<double>(by_rows ? a[a.rank() - 2] : a.back());
    }
    // Scores of keys and the mean of values; with half of all keys if the attention is causal.
    if (&node.op() == &kAttention) {
      const int products = node.options<AttentionOptions>().causal ? 1 : 2;
      return products * elements(out) * static_cast<double>(inputs[1].shape[1]);
    }
    return 0;
  }

  const TowerRecord& tower_;
  std::int64_t samples_;
  std::map<int, Made> made_;  // by the id of the node
};

}  // namespace

ModelWork work_of(const TowerRecord& tower, std::int64_t samples,
                  const std::set<std::string, std::less<>>& frozen) {
  ModelWork work;
  work.multiply_adds = LossWork(tower, std::max<std::int64_t>(1, samples)).multiply_adds();
  for (const Variable& variable : tower.variables)
    if (variable.trainable() || frozen.contains(variable.logical_name()))
      work.weights += static_cast<double>(variable.shape().elements());
  return work;
}

int default_shards(const ModelWork& work, std::int64_t global_batch) {
  constexpr double kSamplesPerWeight = 80, kSamplesPerWeightOfTwo = 8;
  constexpr std::int64_t kShards = 8, kRows = 16, kMost = 256;
  const double weights = work.weights / std::max(1.0, work.multiply_adds);
  const double fewest = std::max(1.0, kSamplesPerWeight * weights);
  const double most =
      std::min(static_cast<double>(std::clamp(global_batch / kRows, kShards, kMost)),
               static_cast<double>(global_batch) / fewest);
  // Shards of one size keep results independent of the number of devices, but too few of them leave
  // cores idle.
  const auto useful = static_cast<std::int64_t>(std::bit_floor(static_cast<std::uint64_t>(most)));
  const std::int64_t even = std::min(useful, global_batch & -global_batch);
  const std::int64_t shards = 2 * even >= useful ? even : useful;
  const bool two_pay =
      static_cast<double>(global_batch) >= 2 * std::max(1.0, kSamplesPerWeightOfTwo * weights);
  return static_cast<int>(std::max<std::int64_t>(shards, two_pay ? 2 : 1));
}

}  // namespace belfry
