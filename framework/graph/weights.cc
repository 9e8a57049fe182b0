#include "belfry/framework/graph/weights.h"

namespace belfry {
namespace {

std::set<const Node*> nodes_in(const Graph& graph, std::string_view collection) {
  const std::vector<Node*> nodes = graph.nodes(collection);
  return {nodes.begin(), nodes.end()};
}

}  // namespace

VariableRoles::VariableRoles(const Graph& graph)
    : averages_(nodes_in(graph, kAverageVariables)), state_(nodes_in(graph, kStateVariables)) {}

VariableRole VariableRoles::of(const Node& variable) const {
  if (averages_.contains(&variable)) return VariableRole::kAverage;
  return state_.contains(&variable) ? VariableRole::kState : VariableRole::kWeight;
}

std::vector<Variable> weights_of(const Graph& graph) {
  const VariableRoles roles(graph);
  std::vector<Variable> weights = originals_of(graph.variables());
  std::erase_if(weights, [&](const Variable& v) {
    const VariableInfo& info = v.node().variable();
    return roles.of(v.node()) != VariableRole::kWeight || (info.local && !info.trainable);
  });
  return weights;
}

}  // namespace belfry
