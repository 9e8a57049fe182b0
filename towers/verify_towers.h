// The verifier for what a tower function builds.
#pragma once
#include "belfry/framework/graph/graph.h"

namespace belfry {

// Collectives among the nodes from number `first` on, which `towers` runs of a tower function made,
// take a tensor of each tower in their order, whatever the number of tensors. Throws
// InvalidArgument naming the collective, its line and the input if one does not: on real devices
// the other towers would never answer.
void verify_tower_collectives(const Graph& graph, std::size_t first, int towers);

}  // namespace belfry
