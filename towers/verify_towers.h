// Checks the collectives that tower functions build.
#pragma once
#include "belfry/framework/graph/graph.h"

namespace belfry {

// A tower function, run for `towers` towers, made the nodes from number `first` on. Each collective
// among them must take tensors of all towers in their order, any number of each. Throws
// InvalidArgument naming the collective, its line and the input if one does not: on real devices
// the other towers would hang.
void verify_tower_collectives(const Graph& graph, std::size_t first, int towers);

}  // namespace belfry
