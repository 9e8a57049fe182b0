// NoOp: computes nothing; other nodes run before it.
#pragma once
#include "belfry/framework/graph/scopes.h"

namespace belfry {

extern const Op kNoOp;

// A node that runs after all of `nodes`; trainers fetch it as one step. Its default name is
// "group_deps". If all nodes request one device, it is placed there, regardless of device scopes.
// Nodes of several devices are grouped per device first, so that only one signal per device
// crosses. These groups are "group_deps/NoOp", in numeric order of devices, the one without a
// device first. For nodes without a device, and for the root of several groups, the device scopes
// in force decide. All join the anchors of ColocateWith scopes, as in TensorFlow, and an anchor's
// device replaces theirs.
Node& group(Graph& graph, std::span<Node* const> nodes, At at = {});
Node& group(Graph& graph, std::initializer_list<ControlInput> nodes, At at = {});

// x, available only after `nodes` have run: an Identity on its device, by default
// "control_dependency".
Output with_dependencies(Output x, std::span<Node* const> nodes, At at = {});

// The same values, each available only after all are computed and `also` have run. Empty outputs
// stay empty; throws InvalidArgument if all are.
std::vector<Output> tuple_of(std::span<const Output> outputs, std::span<Node* const> also = {},
                             At at = {});

}  // namespace belfry
