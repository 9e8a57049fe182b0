#pragma once
#include <vector>

#include "belfry/framework/plan/plan_graph.h"

namespace belfry {

// Finds a node that makes the variables after a step depend on how many towers share the samples.
// Null: there is none. `divisions`: of the outputs of each node, by the rules of ops, even where a
// device has one shard.
//
// Work on rows, on the partial sum of a shard, and on tensors of all towers together is the same
// for any number of towers. Two kinds of nodes are not, and the first whose result reaches a
// variable is returned. A node of a tower may compute on its whole batch, or on the sum over it. A
// node may draw random numbers for other things than rows of samples. Sums over towers do not
// count. They copy the tree over shards exactly if the number of towers is a power of two.
const Node* tower_dependence(const PlanGraph& plan,
                             const Indexed<PlanNode, std::vector<Division>>& divisions);

}  // namespace belfry
