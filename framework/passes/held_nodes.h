// What sort_nodes() holds back although it could go: nodes that wait for messages, and messages
// that would overtake others.
#pragma once
#include <cstdint>
#include <functional>
#include <optional>
#include <vector>

#include "belfry/framework/plan/plan_graph.h"

namespace belfry {

// Whether a node writes a value that the run has gathered first (pass gather_first). Nobody needs
// the new value before the node's place in the order.
bool writes_gathered_first(const PlanGraph& plan, const PlanNode& node);

// Nodes that wait for communication. A strand stands still while its next launch waits. So such a
// node goes after nodes that need not wait, until many more bytes have been sent: 16 MiB, or an
// eighth of all if it leads to further messages. If values are gathered first (pass gather_first),
// these are 48 MiB, or a quarter of all.
class AwaitingNodes {
 public:
  explicit AwaitingNodes(const PlanGraph& plan);

  // Records that a node has its place.
  void place(NodeIndex n);
  // Delays a node that must wait. Returns false if it need not wait.
  bool hold(NodeIndex n);
  // The first node that is due. With `any`, everything else must wait: then the first node of all,
  // whose messages were first.
  std::optional<NodeIndex> take(bool any);

 private:
  struct DelayedNode {
    NodeIndex node;
    std::int64_t due;
  };

  void find_what_leads_to_messages();
  std::int64_t due(const PlanNode& node) const;

  const PlanGraph& plan_;
  std::int64_t most_under_way_ = 0, under_way_ = 0;
  // Bytes that communicating nodes have begun to send, without those after other messages.
  std::int64_t begun_ = 0;
  // Once begun_ has reached due_[n], users of n need not be delayed. 0: n does not communicate.
  Indexed<PlanNode, std::int64_t> due_;
  Indexed<PlanNode, char> follows_message_;  // n comes after a message, or sends one itself
  Indexed<PlanNode, char> leads_to_messages_;
  std::vector<DelayedNode> held_;  // in the order in which they could go
};

// Puts messages into one order in all processes. Processes with batches of different sizes have
// different plans, of which some could send the moments of a batch before its gradients, and others
// after them. So a message that is not eager waits for those that were built before it, unless
// these wait for more messages than it does.
class MessageOrder {
 public:
  explicit MessageOrder(const PlanGraph& plan);

  // Holds a message back. Returns false if it need not wait.
  bool hold(NodeIndex n, bool eager);
  // Notes that a node has its place. Returns the messages that need not wait any more.
  std::vector<NodeIndex> place(NodeIndex n);
  // All that are held, where nothing else is left: other writes may want another order.
  std::vector<NodeIndex> give_up();

 private:
  void find_levels(const Graph& graph);
  int level(const Node& node) const { return levels_[static_cast<std::size_t>(node.id())]; }
  bool must_wait(const Node& node) const;
  std::vector<NodeIndex> release(const std::function<bool(NodeIndex)>& may_go);

  const PlanGraph& plan_;
  std::vector<const Node*> missing_;  // messages without a place
  // By the id of a node: how many messages wait for each other before it can run, as it was built.
  std::vector<int> levels_;
  std::vector<NodeIndex> held_;
};

}  // namespace belfry
