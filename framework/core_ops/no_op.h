// NoOp: computes nothing, but waits.
#pragma once
#include "belfry/framework/graph.h"

namespace belfry {

extern const Op kNoOp;

// A node that runs after all of `nodes`: what trainers fetch as one step. Nodes of several devices
// are grouped per device first, so that one signal per device crosses.
Node& group(Graph& graph, std::span<Node* const> nodes, At at = {});

// x, available only after `nodes` have run.
Output with_dependencies(Output x, std::span<Node* const> nodes, At at = {});

}  // namespace belfry
