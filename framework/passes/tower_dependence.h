#pragma once
#include <vector>

#include "belfry/framework/plan/plan_graph.h"

namespace belfry {

// Finds the nodes of a step whose results depend on how many towers share the samples
// (PlanGraph::tower_dependent), and the first that reaches a variable
// (PlanGraph::moved_by_towers). `divisions`: of the outputs of each node, by the rules of ops, even
// where a device has one shard.
//
// Work on rows, on the partial sum of a shard, and on tensors of all towers together is the same
// for any number of towers. Two kinds of nodes are not. A node of a tower may compute on its whole
// batch, or on the sum over it. A node may draw random numbers for other things than rows of
// samples. Sums over towers do not count. They copy the tree over shards exactly if the number of
// towers is a power of two.
void note_tower_dependence(PlanGraph& plan,
                           const Indexed<PlanNode, std::vector<Division>>& divisions);

}  // namespace belfry
