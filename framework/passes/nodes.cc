// Each device launches its nodes in the order of the plan. So this order decides how soon gradients
// are combined, and how long tensors keep their memory. It depends only on the plan, so that runs
// repeat.
#include "belfry/framework/passes/nodes.h"

#include <algorithm>
#include <optional>
#include <ranges>
#include <utility>

#include "belfry/framework/base/require.h"
#include "belfry/framework/base/sort_unique.h"
#include "belfry/framework/core_ops/copy.h"
#include "belfry/framework/core_ops/fill.h"
#include "belfry/framework/core_ops/gather_shards.h"
#include "belfry/framework/gradients/gradients.h"
#include "belfry/framework/graph/graph.h"
#include "belfry/framework/passes/held_nodes.h"
#include "belfry/framework/passes/smallest_first.h"

namespace belfry {

Consumers consumers_of(const PlanGraph& plan) {
  return Consumers(plan.nodes.size(), [&](const auto& add) {
    for (const NodeIndex n : plan.nodes.indices()) {
      for (const Value& input : plan.nodes[n].inputs) add(input.node, n);
      for (const NodeIndex before : plan.nodes[n].after) add(before, n);
    }
  });
}

std::vector<NodeIndex> users_of(const PlanGraph& plan, const Consumers& consumers, Value value) {
  std::vector<NodeIndex> users;
  std::vector<Value> open{value};
  while (!open.empty()) {
    const Value current = open.back();
    open.pop_back();
    for (const NodeIndex next : consumers[current.node]) {
      const PlanNode& user = plan.node(next);
      if (std::ranges::find(user.inputs, current) == user.inputs.end()) continue;
      if (user.op->alias)
        open.push_back({next, 0});
      else
        users.push_back(next);
    }
  }
  sort_unique(users);
  return users;
}

Indexed<PlanNode, char> reached_from(const Consumers& consumers,
                                     std::span<const NodeIndex> starts) {
  Indexed<PlanNode, char> reached(consumers.size());
  std::vector<NodeIndex> open(starts.begin(), starts.end());
  while (!open.empty()) {
    const NodeIndex n = open.back();
    open.pop_back();
    if (std::exchange(reached[n], true)) continue;
    open.insert(open.end(), consumers[n].begin(), consumers[n].end());
  }
  return reached;
}

std::vector<NodeIndex> Walker::reached_from(const Consumers& consumers,
                                            std::span<const NodeIndex> starts,
                                            const NodeLists& added) {
  marks_.resize(std::max(marks_.size(), consumers.size()));
  std::vector<NodeIndex> reached;
  reached.reserve(2 * starts.size());
  const auto visit = [&](NodeIndex n) {
    if (!std::exchange(marks_[n], true)) reached.push_back(n);
  };
  for (const NodeIndex n : starts) visit(n);
  for (std::size_t i = 0; i < reached.size(); ++i) {
    const NodeIndex from = reached[i];
    std::ranges::for_each(consumers[from], visit);
    if (!added.empty()) std::ranges::for_each(added[from], visit);
  }
  for (const NodeIndex n : reached) marks_[n] = false;
  std::ranges::sort(reached);
  return reached;
}

NodeLists launch_deps(const PlanGraph& plan) {
  NodeLists deps(plan.nodes.size());
  for (const NodeIndex n : plan.nodes.indices()) {
    const auto add = [&](NodeIndex earlier) {
      const std::vector<NodeIndex>& through = deps[earlier];
      if (plan.node(earlier).launches())
        deps[n].push_back(earlier);
      else
        deps[n].insert(deps[n].end(), through.begin(), through.end());
    };
    for (const Value& input : plan.nodes[n].inputs) add(input.node);
    for (const NodeIndex earlier : plan.nodes[n].after) add(earlier);
    sort_unique(deps[n]);
  }
  return deps;
}

Value root_of(const PlanGraph& plan, Value value) {
  value.shard = Value::kOwn;
  for (;;) {
    const PlanNode& node = plan.node(value.node);
    const bool written = value.index < node.writes();
    if (!node.op->alias && !written) return value;
    value = node.inputs[at(written ? value.index : 0)];
    value.shard = Value::kOwn;
  }
}

void keep_nodes(PlanGraph& plan, const std::vector<NodeIndex>& kept) {
  Indexed<PlanNode, NodeIndex> moved(plan.nodes.size());
  Indexed<PlanNode> nodes;
  nodes.reserve(kept.size());
  for (const NodeIndex n : kept) moved[n] = nodes.add(std::move(plan.nodes[n]));
  for (PlanNode& node : nodes) {
    for (Value& input : node.inputs) input.node = moved[input.node];
    for (NodeIndex& before : node.after) before = moved[before];
  }
  plan.nodes = std::move(nodes);
}

namespace {

// Whether a node reads partial sums, which take memory for every shard.
bool reads_partial_sums(const PlanGraph& plan, const PlanNode& node) {
  return std::ranges::any_of(
      node.inputs, [&](const Value& input) { return plan.division(input) == Division::partial(); });
}

// eager[n]: node n goes as early as it may. This holds for writes, collectives, gathers of shards
// and readers of partial sums: they free the memory of their inputs. It also holds for the nodes
// that the gradient of a loss starts from. A copy is eager if one of its users is. Nodes without a
// launch cost nothing, so they go at once.
Indexed<PlanNode, char> find_eager(const PlanGraph& plan, const Consumers& consumers) {
  Indexed<PlanNode, char> eager(plan.nodes.size());
  for (const NodeIndex n : plan.nodes.indices() | std::views::reverse) {
    const PlanNode& node = plan.nodes[n];
    if (!node.launches())
      eager[n] = true;
    else if (node.op == &kCopy)
      eager[n] = std::ranges::any_of(consumers[n], [&](NodeIndex user) { return eager[user]; });
    else if (!writes_gathered_first(plan, node))
      eager[n] = node.writes() > 0 || node.op->collective || node.node->origin().eager ||
                 node.op == &kGatherShards || reads_partial_sums(plan, node) ||
                 (node.op == &kFillLike && node.inputs.empty());
  }
  return eager;
}

// The nodes in their new order. A node on a cycle, or after one, is missing.
std::vector<NodeIndex> sorted_nodes(const PlanGraph& plan) {
  const Consumers consumers = consumers_of(plan);
  Indexed<PlanNode, std::size_t> missing;
  missing.reserve(plan.nodes.size());
  for (const PlanNode& node : plan.nodes) missing.add(node.inputs.size() + node.after.size());
  const Indexed<PlanNode, char> eager = find_eager(plan, consumers);
  SmallestFirst eager_ready(plan.nodes.size()), ready(plan.nodes.size());
  AwaitingNodes awaiting(plan);
  MessageOrder messages(plan);
  const auto push_now = [&](NodeIndex n) {
    if (!awaiting.hold(n)) (eager[n] ? eager_ready : ready).push(at(n.value()));
  };
  const auto push = [&](NodeIndex n) {
    if (!messages.hold(n, eager[n])) push_now(n);
  };
  for (const NodeIndex n : plan.nodes.indices())
    if (missing[n] == 0) push(n);
  std::vector<NodeIndex> sorted;
  sorted.reserve(plan.nodes.size());
  const auto next = [&]() -> std::optional<NodeIndex> {
    bool none = eager_ready.empty() && ready.empty();
    if (const auto held = awaiting.take(none)) return held;
    if (none) std::ranges::for_each(messages.give_up(), push_now);
    none = eager_ready.empty() && ready.empty();
    if (none) return std::nullopt;
    return NodeIndex((eager_ready.empty() ? ready : eager_ready).pop());
  };
  while (const auto found = next()) {
    const NodeIndex n = *found;
    sorted.push_back(n);
    awaiting.place(n);
    std::ranges::for_each(messages.place(n), push_now);
    for (const NodeIndex consumer : consumers[n])
      if (--missing[consumer] == 0) push(consumer);
  }
  return sorted;
}

// Adds nodes to `gone` that have lost all their users and write nothing.
void drop_unused(const PlanGraph& plan, const Indexed<PlanNode, char>& was_used,
                 Indexed<PlanNode, char>& gone) {
  Indexed<PlanNode, std::size_t> uses(plan.nodes.size());
  const auto each_before = [&](NodeIndex n, const auto& f) {
    for (const Value& input : plan.nodes[n].inputs) f(input.node);
    for (const NodeIndex before : plan.nodes[n].after) f(before);
  };
  for (const NodeIndex n : plan.nodes.indices())
    if (!gone[n]) each_before(n, [&](NodeIndex b) { ++uses[b]; });
  std::vector<NodeIndex> open;
  const auto drop = [&](NodeIndex n) {
    const PlanNode& node = plan.nodes[n];
    if (gone[n] || uses[n] > 0 || !was_used[n] || node.writes() > 0 || node.op->storage) return;
    gone[n] = true;
    open.push_back(n);
  };
  for (const NodeIndex n : plan.nodes.indices()) drop(n);
  while (!open.empty()) {
    const NodeIndex n = open.back();
    open.pop_back();
    each_before(n, [&](NodeIndex b) {
      if (--uses[b] == 0) drop(b);
    });
  }
}

// Sorts the nodes that are not gone. All users of a gone node are gone, too.
void keep_sorted(PlanGraph& plan, const Indexed<PlanNode, char>& gone) {
  for (const NodeIndex n : plan.nodes.indices())
    if (gone[n]) plan.nodes[n].inputs.clear(), plan.nodes[n].after.clear();
  std::vector<NodeIndex> sorted = sorted_nodes(plan);
  require<InternalError>(sorted.size() == plan.nodes.size(), "the plan has a cycle");
  std::erase_if(sorted, [&](NodeIndex n) { return gone[n]; });
  keep_nodes(plan, sorted);
}

}  // namespace

std::set<const Node*> recomputed_nodes(const PlanGraph& plan) {
  if (plan.nodes.empty()) return {};
  const std::vector<Node*> nodes = plan.nodes[NodeIndex(0)].node->graph().nodes(kRecomputed);
  return {nodes.begin(), nodes.end()};
}

void sort_nodes(PlanGraph& plan) { keep_sorted(plan, Indexed<PlanNode, char>(plan.nodes.size())); }

namespace {

// The replacement of each node and value, or itself. Most are not replaced, and need no look-up.
class StandIns {
 public:
  StandIns(const PlanGraph& plan, const Replacements& replacements)
      : replacements_(replacements), gives_another_(plan.nodes.size()) {
    for (const NodeIndex n : plan.nodes.indices()) nodes_.push_back(n);
    for (const auto& [replaced, by] : replacements.nodes) nodes_[replaced] = by;
    for (const auto& [replaced, by] : replacements.values) gives_another_[replaced.node] = true;
  }

  NodeIndex of(NodeIndex n) const { return nodes_[n]; }
  Value of(const Value& value) const {
    if (!gives_another_[value.node]) return value;
    if (const auto found = replacements_.values.find(value); found != replacements_.values.end())
      return found->second;
    // A shard of a value is replaced by a shard of the value's replacement.
    const auto whole = replacements_.values.find({value.node, value.index});
    if (whole == replacements_.values.end()) return value;
    Value shard = whole->second;
    shard.shard = value.shard;
    return shard;
  }
  bool replaced(NodeIndex n) const { return nodes_[n] != n; }

 private:
  const Replacements& replacements_;
  Indexed<PlanNode, NodeIndex> nodes_;
  Indexed<PlanNode, char> gives_another_;  // some value of the node is replaced
};

// Whether the replacements would make a node wait for itself.
bool would_close_cycle(const PlanGraph& plan, const StandIns& stand_ins) {
  bool own_input = false;
  const auto each_new_edge = [&](const auto& f) {
    const auto add = [&](NodeIndex before, NodeIndex n) {
      if (before != n) f(before, n);
    };
    for (const NodeIndex own : plan.nodes.indices()) {
      const PlanNode& node = plan.nodes[own];
      for (const NodeIndex before : node.after) add(stand_ins.of(before), stand_ins.of(own));
      if (stand_ins.replaced(own)) continue;
      for (const Value& input : node.inputs) {
        const NodeIndex giver = stand_ins.of(input).node;
        own_input = own_input || giver == own;
        add(giver, own);
      }
    }
  };
  Indexed<PlanNode, int> missing(plan.nodes.size());
  each_new_edge([&](NodeIndex, NodeIndex n) { ++missing[n]; });
  if (own_input) return true;
  const Consumers consumers(plan.nodes.size(), each_new_edge);
  std::vector<NodeIndex> ready;
  for (const NodeIndex n : plan.nodes.indices())
    if (missing[n] == 0) ready.push_back(n);
  for (std::size_t i = 0; i < ready.size(); ++i)
    for (const NodeIndex consumer : consumers[ready[i]])
      if (--missing[consumer] == 0) ready.push_back(consumer);
  return ready.size() < plan.nodes.size();
}

}  // namespace

bool replace_nodes(PlanGraph& plan, const Replacements& replacements) {
  const StandIns stand_ins(plan, replacements);
  if (would_close_cycle(plan, stand_ins)) return false;
  Indexed<PlanNode, char> was_used(plan.nodes.size()), gone(plan.nodes.size());
  for (const PlanNode& node : plan.nodes) {
    for (const Value& input : node.inputs) was_used[input.node] = true;
    for (const NodeIndex before : node.after) was_used[before] = true;
  }
  for (const auto& [replaced, by] : replacements.nodes) {
    gone[replaced] = true;
    const std::vector<NodeIndex> after = std::exchange(plan.nodes[replaced].after, {});
    std::vector<NodeIndex>& to = plan.nodes[by].after;
    to.insert(to.end(), after.begin(), after.end());
  }
  Indexed<PlanNode, NodeIndex> waits(plan.nodes.size());  // the last node to wait for each
  for (const NodeIndex n : plan.nodes.indices()) {
    PlanNode& node = plan.nodes[n];
    for (Value& input : node.inputs) input = stand_ins.of(input);
    for (NodeIndex& before : node.after) before = stand_ins.of(before);
    std::erase_if(node.after, [&](NodeIndex before) {
      return before == n || std::exchange(waits[before], n) == n;
    });
  }
  drop_unused(plan, was_used, gone);
  keep_sorted(plan, gone);
  return true;
}

bool replace_or_give_up(PlanGraph& plan, const Replacements& replacements, NodeIndex first,
                        std::span<const NodeIndex> roots) {
  if (replace_nodes(plan, replacements)) return true;
  const std::size_t kept = at(first.value());
  for (std::size_t i = 0; i < roots.size(); ++i)
    plan.nodes[roots[i]] = std::move(plan.nodes[kept + i]);
  plan.nodes.resize(kept);
  return false;
}

}  // namespace belfry
