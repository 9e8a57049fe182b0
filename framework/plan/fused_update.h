// Fused updates: the body of a node of kFusedUpdate, and functions of it for passes and kernels.
#pragma once
#include <optional>
#include <span>
#include <vector>

#include "belfry/framework/plan/plan_graph.h"

namespace belfry {

// The content of a node of kFusedUpdate: a body of nodes, in an order in which they could run one
// by one. Its outputs have the bits that these members would give.
struct FusedUpdate {
  // The source of a member's input: an input of the fused node, or an output of an earlier member.
  struct Source {
    static constexpr int kInput = -1;
    int member = kInput;
    int index = 0;
    bool operator==(const Source&) const = default;
  };
  struct Member {
    const Op* op;
    const Node* node;
    std::vector<Source> inputs;
    std::vector<TensorType> types;  // of its outputs
    std::vector<int> devices;       // of its outputs
  };
  std::vector<Member> body;
  std::vector<Source> outputs;  // the source of each output of the fused node
  // Number of variables that members write: they are the first inputs of the fused node. Output i
  // is the new value of input i.
  int writes = 0;
};

// A member that reads an input of the fused node, and the number of this input in the member.
struct FusedReader {
  const FusedUpdate::Member* member = nullptr;
  std::size_t input = 0;
};

// The first reader of each input of the fused node.
std::vector<FusedReader> readers_of(const FusedUpdate& fused);

// The collective in a body, or null. All its inputs are inputs of the fused node.
const FusedUpdate::Member* collective_in(const FusedUpdate& fused);

// The collective of a node: the node itself, or a member of its body. Valid as long as the node.
struct CollectivePart {
  const Node* node;
  std::vector<Value> inputs;
  std::span<const TensorType> types;  // of its outputs
  std::span<const int> devices;       // of its outputs
};

// Empty for nodes without a collective.
std::optional<CollectivePart> collective_of(const PlanNode& node);

// The work of the kernel of a FusedUpdate. The body is a collective and the updates that are the
// only readers of its results. Or, on a GPU, it is updates of one op without a collective, each of
// its own gradient. On a host, sums over the shards of each participant may come before the
// collective, or one such sum may replace it. The inputs of the fused node are in this order: the
// variables that updates write; the tensors to add up, or the gradients; the other inputs of
// updates. Its range counts the elements of the tensors end to end.
struct FusedTensors {
  static constexpr std::size_t kMostInputs = 16;  // of an update
  static constexpr std::size_t kMostParticipants = 256;
  static constexpr int kMostOnGpus = 24;   // participants on GPUs, and updates of a tensor
  static constexpr int kMostGrouped = 12;  // tensors that a launch on a GPU updates
  static constexpr int kCombined = -1;

  struct Update {
    const FusedUpdate::Member* member;  // of the body from which this was made
    std::vector<int> inputs;   // of the fused node; kCombined: the result of the collective
    std::size_t first_output;  // of the fused node
  };
  struct Tensor {
    TensorType type;
    // The first of the participants * shards inputs of the fused node that are combined.
    std::size_t first_input;
    std::vector<Update> updates;
  };
  static constexpr std::size_t kMostSharded = 16;   // participants with sums over shards
  const FusedUpdate::Member* collective = nullptr;  // null without a collective
  const FusedUpdate::Member* shard_sum = nullptr;   // the sum of the first participant; null: none
  std::size_t participants = 1, shards = 1;
  std::vector<Tensor> tensors;

  std::int64_t elements() const;
};

FusedTensors tensors_of(const FusedUpdate& fused);

}  // namespace belfry
