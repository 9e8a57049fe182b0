// NoOp: computes nothing, but waits.
#pragma once
#include "belfry/framework/graph/scopes.h"

namespace belfry {

extern const Op kNoOp;

// A node that runs after all of `nodes`: what trainers fetch as one step. By default it is called
// "group_deps". Where all ask for one device it is on that, whatever the device scopes. Nodes of
// several devices are grouped per device first ("group_deps/NoOp", in numeric order of devices,
// those without one first), so that one signal per device crosses. For nodes without a device, and
// for the root of several groups, the device scopes in force decide. All join the anchors of
// ColocateWith scopes, as in TensorFlow, and an anchor's device replaces theirs.
Node& group(Graph& graph, std::span<Node* const> nodes, At at = {});
Node& group(Graph& graph, std::initializer_list<Dependency> nodes, At at = {});

// x, available only after `nodes` have run: an Identity beside it, by default "control_dependency".
Output with_dependencies(Output x, std::span<Node* const> nodes, At at = {});

// The same values, each available only when all are computed, and `also` have run. Empty outputs
// stay empty; throws InvalidArgument if all are.
std::vector<Output> tuple_of(std::span<const Output> outputs, std::span<Node* const> also = {},
                             At at = {});

}  // namespace belfry
