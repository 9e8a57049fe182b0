#include "belfry/towers/tower_nodes.h"

#include <algorithm>

#include "belfry/framework/base/sort_unique.h"
#include "belfry/framework/core_ops/placeholder.h"
#include "belfry/framework/graph/state.h"

namespace belfry {
namespace {

// The variable whose storage or value `input` is, if it is one.
Node* variable_behind(Output input) {
  Node* node = &input.node();
  if (&node->op() == &kRead) node = &node->input(0).node();
  return node->is_variable() ? node : nullptr;
}

// The variable's place in the order of tower 0.
int place_in_tower_0(const Node* variable) {
  const Node* main = variable->variable().copy_of;
  return main ? main->id() : variable->id();
}

bool is_below(std::string_view name, std::string_view scope) {
  if (scope.empty()) return true;
  if (!name.starts_with(scope)) return false;
  return scope.ends_with('/') || name.size() == scope.size() || name[scope.size()] == '/';
}

}  // namespace

std::vector<Output> TowerNodes::inputs() const {
  std::vector<Output> result;
  for (std::size_t id = first_node_; id < graph_.size(); ++id)
    if (&graph_.node(id).op() == &kPlaceholder) result.push_back(graph_.node(id).output());
  return result;
}

std::vector<Variable> TowerNodes::variables(std::string_view prefix) const {
  std::vector<Node*> found;
  for (std::size_t id = first_node_; id < graph_.size(); ++id) {
    Node& node = graph_.node(id);
    if (node.is_variable()) found.push_back(&node);
    if (&node.op() == &kRead) continue;  // its users count
    for (const Output& input : node.inputs())
      if (Node* used = variable_behind(input)) found.push_back(used);
  }
  for (const Variable& variable : used_) found.push_back(&variable.node());
  sort_unique(found);
  std::vector<Variable> result;
  for (Node* node : found)
    if (is_below(node->logical_name(), prefix)) result.emplace_back(*node);
  std::ranges::sort(result, {}, [](const Variable& v) { return place_in_tower_0(&v.node()); });
  return result;
}

std::vector<Variable> TowerNodes::trainables(std::string_view prefix) const {
  std::vector<Variable> result = variables(prefix);
  std::erase_if(result, [](const Variable& v) { return !v.trainable(); });
  return result;
}

std::vector<Node*> TowerNodes::nodes(std::string_view collection) const {
  std::vector<Node*> result = graph_.nodes(collection);
  std::erase_if(
      result, [&](const Node* node) { return static_cast<std::size_t>(node->id()) < first_node_; });
  return result;
}

std::vector<Variable> TowerNodes::own_variables() const {
  std::vector<Variable> result;
  for (std::size_t id = first_node_; id < graph_.size(); ++id)
    if (graph_.node(id).is_variable()) result.emplace_back(graph_.node(id));
  return result;
}

}  // namespace belfry
