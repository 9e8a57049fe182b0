#include "belfry/framework/graph/weights.h"

namespace belfry {
namespace {

std::set<const Node*> nodes_in(const Graph& graph, std::string_view collection) {
  const std::vector<Node*> nodes = graph.nodes(collection);
  return {nodes.begin(), nodes.end()};
}

// Those that checkpoints keep, or the others. They are no copies.
std::vector<Variable> weights(const Graph& graph, bool saved) {
  const VariableRoles roles(graph);
  std::vector<Variable> found = originals_of(graph.variables());
  std::erase_if(found, [&](const Variable& v) {
    const VariableInfo& info = v.node().variable();
    return roles.of(v.node()) != VariableRole::kWeight || saved == (info.local && !info.trainable);
  });
  return found;
}

}  // namespace

VariableRoles::VariableRoles(const Graph& graph)
    : averages_(nodes_in(graph, kAverageVariables)), state_(nodes_in(graph, kStateVariables)) {}

VariableRole VariableRoles::of(const Node& variable) const {
  if (averages_.contains(&variable)) return VariableRole::kAverage;
  return state_.contains(&variable) ? VariableRole::kState : VariableRole::kWeight;
}

std::vector<Variable> weights_of(const Graph& graph) { return weights(graph, true); }

std::vector<Variable> unsaved_weights_of(const Graph& graph) { return weights(graph, false); }

}  // namespace belfry
