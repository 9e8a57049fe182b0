// Helpers of passes: questions about the nodes of a plan, their order, and their replacement.
#pragma once
#include <map>
#include <set>
#include <span>
#include <unordered_map>
#include <vector>

#include "belfry/framework/plan/consumers.h"
#include "belfry/framework/plan/plan_graph.h"
#include "belfry/framework/plan/schedule.h"

namespace belfry {

// Nodes that use a value, directly or through aliases. They must run before the value is
// overwritten.
std::vector<NodeIndex> users_of(const PlanGraph& plan, const Consumers& consumers, Value value);
// For each node, the nodes that have it as an input or in `after`.
Consumers consumers_of(const PlanGraph& plan);

// reached[n]: n is one of `starts`, or a path leads from one of them to n.
Indexed<PlanNode, char> reached_from(const Consumers& consumers, std::span<const NodeIndex> starts);
// Like reached_from(), for many walks that each reach few nodes. A walk takes time in proportion to
// the nodes that it reaches.
class Walker {
 public:
  // `nodes`: the most nodes of any plan that it walks.
  explicit Walker(std::size_t nodes) : marks_(nodes) {}
  // The nodes reached, in order. `added` holds a list of further consumers for each node, or is
  // empty.
  std::vector<NodeIndex> reached_from(const Consumers& consumers, std::span<const NodeIndex> starts,
                                      const NodeLists& added = {});

 private:
  Indexed<PlanNode, char> marks_;
};

// deps[n]: launching nodes that n waits for, directly or through aliases and storage. Sorted.
NodeLists launch_deps(const PlanGraph& plan);

// The value that owns the memory of `value`. It follows aliases, and goes from a write to its
// variable.
Value root_of(const PlanGraph& plan, Value value);

// The replacement of each replaced node and value. `values` must list each value of a replaced node
// that has users.
struct Replacements {
  std::map<NodeIndex, NodeIndex> nodes;
  std::unordered_map<Value, Value> values;
};

// Replaces nodes, drops nodes that lost their last user, and sorts. A replacement takes over the
// control inputs of its node. Returns false, and changes nothing, if that would close a cycle.
bool replace_nodes(PlanGraph& plan, const Replacements& replacements);
// Replaces nodes by those that a pass has appended, from `first` on. If node first + i replaces an
// old node, it has swapped places with roots[i]. If this would close a cycle, the plan is restored
// to its state before the pass. Graphs of training programs have no such cycle.
bool replace_or_give_up(PlanGraph& plan, const Replacements& replacements, NodeIndex first,
                        std::span<const NodeIndex> roots = {});

// Keeps the given nodes, in the given topological order. The others must have no users.
void keep_nodes(PlanGraph& plan, const std::vector<NodeIndex>& kept);

// Nodes of the graph that the backward pass recomputes (GradientOptions::recompute).
std::set<const Node*> recomputed_nodes(const PlanGraph& plan);

// Reorders nodes topologically, smallest old index first. Eager nodes come as early as they may
// (writes, collectives, gathers of shards, nodes of an EagerScope and some more: nodes.cc). Nodes
// that wait for messages come later. Throws InternalError on a cycle.
void sort_nodes(PlanGraph& plan);

// Calls f(launch) for each launch of a node; `first` is its first one. A collective over several
// GPUs has a launch on each of them. They follow each other in the global order.
template <class F>
void each_launch(const ExecutionSchedule& schedule, LaunchIndex first, const F& f) {
  const NodeIndex node = schedule.launches[first].node;
  for (LaunchIndex l = first; l < schedule.launches.next() && schedule.launches[l].node == node;
       ++l)
    f(l);
}

}  // namespace belfry
