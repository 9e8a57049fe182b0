// The variables of a graph that a checkpoint holds.
#pragma once
#include <functional>
#include <map>
#include <string>
#include <vector>

#include "belfry/framework/graph/variable.h"

namespace belfry {

// Variables by the key of their tensor.
using CheckpointVariables = std::map<std::string, Variable, std::less<>>;

// The global variables that are not copies. Throws InvalidArgument if two have one logical name.
CheckpointVariables stored_variables(const Graph& graph);

std::vector<std::string> tensor_keys(const CheckpointVariables& by_name);

}  // namespace belfry
