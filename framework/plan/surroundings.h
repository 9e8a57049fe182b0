// The plan around a node, as its op sees it: a pattern matcher and rewriter. The op can replace
// several nodes by one (Op::fuse).
#pragma once
#include <optional>
#include <span>
#include <utility>
#include <vector>

#include "belfry/framework/plan/consumers.h"

namespace belfry {

// A node that replaces several.
struct FusedNodes {
  NodeIndex root;  // the new node takes its place
  PlanNode node;
  std::vector<NodeIndex> members;
  std::vector<Value> results;  // by output of the new node: the value that it replaces
};

// Whether a node reads a value. All shards of a value count as this value.
bool reads_value(const PlanNode& node, Value value);

class Surroundings {
 public:
  // `consumers`: see consumers_of(). `free[n]`: node n may become part of a fusion.
  Surroundings(const PlanGraph& plan, const Consumers& consumers,
               const Indexed<PlanNode, char>& free, NodeIndex root, bool on_gpu)
      : plan_(plan), consumers_(consumers), free_(free), root_(root), on_gpu_(on_gpu) {}

  bool on_gpu() const { return on_gpu_; }
  const Op* op() const { return plan_.node(root_).op; }
  Value input(std::size_t i) const { return plan_.node(root_).inputs[i]; }
  Value output(int i) const { return {root_, i}; }
  // Any node of the plan.
  const PlanNode& node(NodeIndex n) const { return plan_.node(n); }
  const TensorType& type(Value value) const { return plan_.type(value); }

  // The value before aliases that keep its last dimension, such as reshapes of the other
  // dimensions.
  Value before_aliases(Value value) const;
  // The value after such aliases, if each has no other user.
  Value behind_aliases(Value value) const;

  // The node that makes a value, if it has this op, is on this device and may be fused; else none.
  NodeIndex maker(Value value, const Op& op) const;
  // Also looks through such aliases. None if the value has a user besides `user`.
  NodeIndex maker_for(NodeIndex user, Value value, const Op& op) const;
  // The only node that uses a value, if it has this op, is on this device and may be fused; else
  // none.
  NodeIndex only_user(Value value, const Op& op) const;
  // A node of `op` that uses a value and may be fused; none if there is no such node. The value may
  // have other users.
  NodeIndex user(Value value, const Op& op) const;
  // Whether a value is made from results of nodes of `op`.
  bool depends_on(Value value, const Op& op) const;
  // Whether a node outside `members` uses a value, or waits for its node.
  bool is_used_by_others(Value value, std::span<const NodeIndex> members) const;

  // Replaces this node and `others` by a node of `op`. Each of its outputs replaces a value in
  // `results`. No other value of a member may have a user outside the members.
  void replace(const Op& op, std::vector<Value> inputs, std::vector<Value> results,
               std::vector<NodeIndex> others);
  std::optional<FusedNodes> take() { return std::move(made_); }

 private:
  // Whether a node is an alias that keeps the last dimension.
  bool keeps_rows(NodeIndex n) const;
  // The one node that uses a value; none if several do.
  NodeIndex sole_user(Value value) const;
  // Whether nodes run the same way: on one device, once or once per shard.
  bool fits(NodeIndex n) const;
  // Whether each shard takes its own part of a value that a member reads.
  bool is_own(Value value, std::span<const NodeIndex> members) const;

  const PlanGraph& plan_;
  const Consumers& consumers_;
  const Indexed<PlanNode, char>& free_;
  NodeIndex root_;
  bool on_gpu_;
  std::optional<FusedNodes> made_;
};

}  // namespace belfry
