// Whether what a step leaves in the variables depends on how many towers share its samples.
#pragma once
#include <vector>

#include "belfry/framework/plan/plan_graph.h"

namespace belfry {

// `divisions` of the outputs of each node, by the rules of ops, even where a device has one shard.
//
// Work on rows, on the partial sum of a shard, and on what all towers have together is the same for
// any number of towers. So the first node of a tower that makes something of its whole batch, or of
// the sum over it, and whose result reaches a variable, is returned; and one that draws random
// numbers for other things than rows of samples. Null: there is none. Sums over towers are no such
// nodes. They are exact copies of the tree over shards if the number of towers is a power of two.
const Node* tower_dependence(const PlanGraph& plan,
                             const Indexed<PlanNode, std::vector<Division>>& divisions);

}  // namespace belfry
