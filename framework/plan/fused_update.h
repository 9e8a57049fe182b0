// Fused updates: the body of a node of kFusedUpdate, and what passes and kernels ask of it.
#pragma once
#include <optional>
#include <span>
#include <vector>

#include "belfry/framework/plan/plan_graph.h"

namespace belfry {

// What a node of kFusedUpdate stands for: a body of nodes, in an order in which they could run one
// by one. The bits of its outputs are those that the members give when they run apart.
struct FusedUpdate {
  // What a member takes: an input of the fused node, or an output of an earlier member.
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
  std::vector<Source> outputs;  // of the fused node: by which member it has each
  // Variables that members write: inputs 0.. of the fused node. Output i is the new value of i.
  int writes = 0;
};

// A member that reads an input of the fused node, and as which of its own inputs.
struct FusedReader {
  const FusedUpdate::Member* member = nullptr;
  std::size_t input = 0;
};

// The first reader of each input of the fused node.
std::vector<FusedReader> readers_of(const FusedUpdate& fused);

// The collective in a body, or null. All its inputs are inputs of the fused node.
const FusedUpdate::Member* collective_in(const FusedUpdate& fused);

// The collective that a node is, or that it has in its body; valid as long as the node.
struct CollectivePart {
  const Node* node;
  std::vector<Value> inputs;
  std::span<const TensorType> types;  // of its outputs
  std::span<const int> devices;       // of its outputs
};

// Empty for nodes without one.
std::optional<CollectivePart> collective_of(const PlanNode& node);

// What kernels of a FusedUpdate do. The body is a collective and the updates that alone read its
// results; or, on a GPU, updates of one op without a collective, each of a gradient of its own. On
// a host what adds up the shards of each participant may come before the collective, or stand in
// the place of one. The fused node's inputs are the variables that updates write, then what is
// added up or the gradients, then what else updates take. Its range counts the elements of the
// tensors end to end.
struct FusedTensors {
  static constexpr std::size_t kMostInputs = 16;  // of an update
  static constexpr std::size_t kMostParticipants = 256;
  static constexpr int kMostOnGpus = 24;   // participants there, and updates of a tensor
  static constexpr int kMostGrouped = 12;  // tensors that a launch there updates
  static constexpr int kCombined = -1;

  struct Update {
    const FusedUpdate::Member* member;  // of the body that this was made from
    std::vector<int> inputs;            // of the fused node; kCombined: what the collective gives
    std::size_t first_output;           // of the fused node
  };
  struct Tensor {
    TensorType type;
    // Of participants * shards inputs of the fused node: what is combined.
    std::size_t first_input;
    std::vector<Update> updates;
  };
  static constexpr std::size_t kMostSharded = 16;   // participants whose shards are added up
  const FusedUpdate::Member* collective = nullptr;  // null without one
  const FusedUpdate::Member* shard_sum = nullptr;  // the first of those of participants; null: none
  std::size_t participants = 1, shards = 1;
  std::vector<Tensor> tensors;

  std::int64_t elements() const;
};

FusedTensors tensors_of(const FusedUpdate& fused);

}  // namespace belfry
