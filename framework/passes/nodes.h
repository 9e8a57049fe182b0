// What passes share: questions about the nodes of a plan, their order, and their replacement.
#pragma once
#include <map>
#include <set>
#include <span>
#include <unordered_map>
#include <vector>

#include "belfry/framework/plan/consumers.h"
#include "belfry/framework/plan/plan_graph.h"

namespace belfry {

// Nodes that use a value, aliases followed: what must be done with it before it is overwritten.
std::vector<NodeIndex> users_of(const PlanGraph& plan, const Consumers& consumers, Value value);
// Nodes that have a node as input or in `after`.
Consumers consumers_of(const PlanGraph& plan);

// reached[n]: n is one of `starts`, or there is a path to it from one.
Indexed<PlanNode, char> reached_from(const Consumers& consumers, std::span<const NodeIndex> starts);
// The same for many walks that reach little each: they take the time of what they reach.
class Walker {
 public:
  // Of a plan with so many nodes, or fewer.
  explicit Walker(std::size_t nodes) : marks_(nodes) {}
  // The nodes that are reached, in order. `added`: consumers besides those; empty, or a list for
  // each node.
  std::vector<NodeIndex> reached_from(const Consumers& consumers, std::span<const NodeIndex> starts,
                                      const NodeLists& added = {});

 private:
  Indexed<PlanNode, char> marks_;
};

// deps[n]: launching nodes that n waits for, through aliases and storage; in order of their
// numbers.
NodeLists launch_deps(const PlanGraph& plan);

// The value whose memory `value` is: through aliases and, for writes, to the variable.
Value root_of(const PlanGraph& plan, Value value);

// What each node, and each value, is replaced by. Values of replaced nodes that somebody uses are
// among them.
struct Replacements {
  std::map<NodeIndex, NodeIndex> nodes;
  std::unordered_map<Value, Value> values;
};

// Replaces nodes, whose control inputs their replacements take over, drops what nobody uses any
// more, and sorts. Returns false, and changes nothing, if that would close a cycle.
bool replace_nodes(PlanGraph& plan, const Replacements& replacements);
// The same by nodes that a pass has appended, from `first` on. Of those that stand where another
// stood, node first + i has changed places with roots[i]. If that would close a cycle, all of them
// are given up: the plan is as it was before. Graphs of training programs have no such cycle.
bool replace_or_give_up(PlanGraph& plan, const Replacements& replacements, NodeIndex first,
                        std::span<const NodeIndex> roots = {});

// Keeps the given nodes, in the given order, which is topological; the others have no users.
void keep_nodes(PlanGraph& plan, const std::vector<NodeIndex>& kept);

// Nodes of the graph that the backward pass computes again (GradientOptions::recompute).
std::set<const Node*> recomputed_nodes(const PlanGraph& plan);

// Reorders nodes topologically: smallest old index first, but for what goes as soon as it may
// (writes, collectives, gathers of shards, nodes of an EagerScope and some more: nodes.cc), and
// what waits for messages. Throws InternalError on a cycle.
void sort_nodes(PlanGraph& plan);

}  // namespace belfry
