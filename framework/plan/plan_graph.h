// The nodes of a plan, before there is a schedule. Passes transform them one after another.
#pragma once
#include <map>
#include <memory>
#include <set>
#include <span>
#include <string>
#include <variant>
#include <vector>

#include "belfry/framework/base/index.h"
#include "belfry/framework/device/device.h"
#include "belfry/framework/graph/kernel.h"
#include "belfry/framework/graph/packed_form.h"
#include "belfry/framework/graph/shards.h"
#include "belfry/framework/plan/request.h"

namespace belfry {

// Converts for C++ containers: sessions number their devices, and nodes their outputs, by int.
constexpr std::size_t at(std::integral auto i) { return static_cast<std::size_t>(i); }

class Placement;
struct FusedUpdate;
struct PlanNode;
struct Rank;
using NodeIndex = Index<PlanNode>;
using NodeLists = Indexed<PlanNode, std::vector<NodeIndex>>;  // a list for each node

// Output `index` of plan node `node`.
struct Value {
  static constexpr int kOwn = -1;
  NodeIndex node;
  int index = 0;
  int shard = kOwn;  // the shard of a divided tensor that a node takes; kOwn: the node's own
  auto operator<=>(const Value&) const = default;
};

// A graph node with real shapes and a device, or a node that a pass added: a transfer, a copy, a
// fused node, the part of a rank. Nodes are always in topological order of inputs and `after`.
struct PlanNode {
  struct Fed {
    int feed;
  };
  struct Fetched {
    int fetch;
  };
  struct Rematerialised {};
  // How it differs from the node of the graph: it takes its value from a feed, copies into a fetch,
  // recomputes an activation, is a FusedUpdate, is one rank's part of a collective, or packs
  // weights.
  using Role =
      std::variant<std::monostate, Fed, Fetched, Rematerialised, std::shared_ptr<const FusedUpdate>,
                   std::shared_ptr<const Rank>, std::shared_ptr<const PackedForm>>;

  const Op* op;
  const Node* node;  // for transfers and copies: the node whose output they carry
  std::vector<Value> inputs;
  std::vector<NodeIndex> after;   // nodes that must have run, in addition to the inputs
  std::vector<TensorType> types;  // of the outputs
  std::vector<int> devices;       // of the outputs; at least one, the node's own
  Role role = {};
  bool reads_shared_storage = false;  // it reads a variable that another device stores for this one
  // For a node that runs once per shard, and for an alias of a divided tensor: the division of its
  // outputs, and the inputs of which each shard takes its own part. Otherwise empty.
  Sharding sharding = {};
  std::int64_t rows = 0;  // of output 0, for each sample of the device's batch; 0: unknown

  int device() const { return devices[0]; }
  // How an output lies in memory.
  Division division(int output) const {
    return sharding.divides() ? sharding.outputs[at(output)] : Division();
  }
  // The number of the feed or fetch; -1 for other nodes.
  int feed() const { return role_as<Fed>() ? role_as<Fed>()->feed : -1; }
  int fetch() const { return role_as<Fetched>() ? role_as<Fetched>()->fetch : -1; }
  // Null for other nodes.
  const FusedUpdate* fused_update() const { return pointer<FusedUpdate>(); }
  const Rank* rank() const { return pointer<Rank>(); }
  const PackedForm* packed_form() const { return pointer<PackedForm>(); }
  // Whether it recomputes an activation for the backward pass (passes/rematerialise.cc).
  bool is_rematerialised() const { return role_as<Rematerialised>(); }
  // Whether it is the storage of a variable: not a read, a copy, or a feed in its place.
  bool is_variable() const { return node->is_variable() && op == &node->op(); }
  // Whether a run executes it. An alias, or memory from outside the plan, does nothing.
  bool launches() const { return !op->alias && !op->storage; }
  // K of a collective, of the collective in a FusedUpdate, or of the part of a rank; else 0. A
  // collective runs on any device that reaches the tensors of its participants, and reads each in
  // place.
  int participants() const;
  // The number of variables that it writes: they are its first inputs. Output i is the new value of
  // input i.
  int writes() const;
  std::string name() const;

 private:
  template <class T>
  const T* role_as() const {
    return std::get_if<T>(&role);
  }
  template <class T>
  const T* pointer() const {
    const auto* const held = role_as<std::shared_ptr<const T>>();
    return held ? held->get() : nullptr;
  }
};

// Whether the node makes random numbers without inputs, so each depends only on its index.
inline bool draws(const PlanNode& node) {
  return node.op->random && node.inputs.empty() && node.op->split == WorkSplit::kElements;
}

// The role of a node that does one rank's part of NCCL's work. Either it is the part of a
// collective (Op::ranks) that one GPU does, with the inputs and outputs of the participants on that
// GPU. Or it sends messages of a GPU to other processes and receives theirs (Op::exchange); then
// its number is 0 and it has no members. Its results depend on the parts of all ranks, also in
// other processes. No launch waits for the parts of other processes; NCCL does.
struct Rank {
  int number = 0;            // among the ranks of this process
  std::vector<int> devices;  // of its ranks; the communication strand of each does the part
  std::vector<int> members;  // participants of the collective, in order

  // Whether the collective has no other rank, in this process or in another.
  bool alone(const Node& collective) const;
};

// A tensor that goes to another device: one record per tensor and destination device. Devices of
// one memory space share the tensor, but its bytes count for each. A collective over K devices
// counts, for each of its tensors, as K - 1 copies to its first device and K - 1 back.
struct TransferRecord {
  std::string name;  // of the tensor
  int from, to;
  std::int64_t bytes;
};

// The device of a node. There is one record per output of a collective, else one for all outputs.
struct Assignment {
  const Node* node;
  int device;
};

// The batch of a device, which is cut into shards.
struct DeviceBatch {
  std::int64_t samples = 0;  // 0: nothing is cut
  std::int64_t first = 0;    // number of its first sample in the batch of all devices
};

struct PlanGraph {
  std::shared_ptr<const Placement> placement;  // gives the devices of the graph's nodes
  std::vector<Assignment> assignments;         // in the order in which they were made

  // [variable] -> the variable whose memory it will share. The first has no memory yet. The second
  // has none either, or owns its storage.
  std::map<const Node*, const Node*> shares;
  // Variables that share storage, but must not in this plan. Each gets its own before the plan
  // runs.
  std::vector<const Node*> unshare;

  std::vector<Output> fetches;  // an empty one for a node
  std::vector<FeedType> feeds;

  Indexed<PlanNode> nodes;
  std::vector<TransferRecord> transfers;

  // Tensors of GPUs whose rows are padded (passes/pad_rows.cc): elements from the start of a row,
  // along the last dimension, to that of the next.
  std::map<Value, std::int64_t> pitches;

  int shards_per_device = 1;
  std::vector<DeviceBatch> batches;  // by device; empty: nothing is cut
  // Nodes that compute on the whole batch of one tower, so that their results depend on how many
  // towers share the samples (passes/tower_dependence.h), and the first of them on the way to a
  // variable. Null: there is none.
  std::set<const Node*> tower_dependent;
  const Node* moved_by_towers = nullptr;

  // For each node of the graph that pass `fuse` has joined with others: the op of the new node, and
  // the node in whose place it stands.
  struct FusedInto {
    const Op* op;
    const Node* node;
  };
  std::map<const Node*, FusedInto> fused_into;

  std::vector<const Node*> variables;  // read or written
  bool writes = false;
  LockDuration locks = LockDuration::kWholeRun;
  bool gathers_first = false;  // as in PrepareOptions
  bool fuse = true;            // SessionOptions::fuse, or false (PrepareOptions::fuse)
  // Variables that the previous run updated in parts, and that this run gathers at its beginning;
  // for each, the node that writes it. When this run ends, other processes have newer values of
  // their parts.
  std::map<const Node*, const Node*> gathered_first;

  const PlanNode& node(NodeIndex n) const { return nodes[n]; }
  // The plan node that stands for a node of the graph, or none. Nodes that only transfer, copy or
  // feed its outputs do not count.
  NodeIndex find(const Node& node) const;
  // The type of the whole tensor.
  const TensorType& type(Value value) const { return node(value.node).types[at(value.index)]; }
  // The pitch of a value; 0 if it is dense.
  std::int64_t pitch(Value value) const;
  // The bytes of the whole tensor in memory, with the padding of its rows.
  std::int64_t bytes(Value value) const;
  // The pitches of a node's inputs, then of its outputs; none if all are dense.
  std::vector<std::int64_t> pitches_of(NodeIndex n) const;
  // The type of the part that a node takes: of one shard, if the value names it.
  TensorType taken_type(Value value) const;
  Division division(Value value) const { return node(value.node).division(value.index); }
  // How many times a node runs.
  int runs(const PlanNode& of) const { return of.sharding.divides() ? shards_per_device : 1; }
  // The samples of a shard in the batch of its device.
  WorkRange samples(int device, int shard) const {
    return samples_of_shard(batches[at(device)].samples, shards_per_device, shard);
  }
  // The samples of the largest shard.
  std::int64_t most_samples(int device) const {
    return (batches[at(device)].samples + shards_per_device - 1) / shards_per_device;
  }
  // The type of the rows of a shard with that many samples. `whole` is a tensor of the device that
  // is cut by rows.
  TensorType rows_of(const TensorType& whole, int device, std::int64_t samples) const;
  // The types that a node that runs per shard takes and makes in a shard with that many samples.
  std::vector<TensorType> input_types(const PlanNode& of, std::int64_t samples) const;
  std::vector<TensorType> output_types(const PlanNode& of, std::int64_t samples) const;
  int device(Value value) const { return node(value.node).devices[at(value.index)]; }
  std::vector<TensorType> input_types(const PlanNode& of) const;
  // The name of the graph's tensor that a value is, carries or copies.
  std::string name(Value value) const;
};

}  // namespace belfry

template <>
struct std::hash<belfry::Value> {
  std::size_t operator()(const belfry::Value& value) const {
    const std::size_t output = belfry::at(value.node.value()) * 64 + belfry::at(value.index);
    return output * 64 + belfry::at(value.shard + 1);
  }
};
