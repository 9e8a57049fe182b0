#include "belfry/framework/base/require.h"
#include "belfry/framework/checkpoint/checkpoint_variables_impl.h"
#include "belfry/framework/graph/graph.h"

namespace belfry {

CheckpointVariables stored_variables(const Graph& graph) {
  CheckpointVariables result;
  for (const Variable variable : originals_of(graph.variables(kGlobalVariables))) {
    const auto [at, fresh] = result.emplace(variable.logical_name(), variable);
    require(fresh || at->second == variable, variable.node().describe(), " and ",
            at->second.node().describe(), " have one logical name, '", at->first,
            "', so a checkpoint cannot tell them apart; rename one, or declare it a copy");
  }
  return result;
}

std::vector<std::string> tensor_keys(const CheckpointVariables& by_name) {
  std::vector<std::string> result;
  for (const auto& [name, variable] : by_name) result.push_back(name);
  return result;
}

}  // namespace belfry
