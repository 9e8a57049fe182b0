#include "belfry/trainers/core/training_graph_checks.h"

#include <map>
#include <set>
#include <utility>

#include "belfry/framework/base/log.h"
#include "belfry/framework/base/require.h"
#include "belfry/framework/base/text.h"
#include "belfry/framework/gradients/gradients.h"
#include "belfry/trainers/util/option_error.h"

namespace belfry {

void require_field_names(std::span<const Dataset::Field> fields) {
  std::set<std::string> seen;
  for (const Dataset::Field& field : fields) {
    require(!field.name.empty() && field.name.find_first_of(":/ ") == std::string::npos,
            "the data have a field called '", field.name,
            "'; a name is not empty and has no colon, slash or space");
    require(seen.insert(field.name).second, "the data have two fields called '", field.name, "'");
  }
}

void require_recompute_scopes(const TowerRecord& tower, const std::vector<std::string>& scopes) {
  if (scopes.empty()) return;
  std::set<std::string> unused(scopes.begin(), scopes.end()), known;
  for (int id = 0; id <= tower.loss.node().id(); ++id) {  // no gradients
    const Node& node = tower.graph->node(static_cast<std::size_t>(id));
    const std::string_view name = node.logical_name();
    if (node.origin().call != tower.call) continue;
    std::erase_if(unused, [&](const std::string& scope) {
      return !recompute_scope(name, {&scope, 1}).empty();
    });
    if (const std::size_t slash = name.find('/'); slash != std::string_view::npos)
      known.insert(std::string(name.substr(0, slash)));
  }
  if (unused.empty()) return;
  const std::vector<std::string> names(known.begin(), known.end());
  refuse_option<OptionMistake>(
      "recompute", "=", *unused.begin(), ": the model has no nodes in such a scope",
      did_you_mean(*unused.begin(), names),
      names.empty() ? "; it has no scopes" : cat(" (the outermost are ", join(names), ")"));
}

void warn_of_useless_scopes(const Graph& graph, const std::vector<std::string>& scopes) {
  if (scopes.empty() || graph.process().rank > 0) return;
  std::set<std::string> useful;
  for (const Node* const copy : graph.nodes(kRecomputed))
    for (const std::string& scope : scopes)
      if (!recompute_scope(copy->origin().forward->logical_name(), {&scope, 1}).empty()) {
        useful.insert(scope);
        break;
      }
  for (const std::string& scope : scopes) {
    const std::string warning =
        cat("recompute=", scope, " saves nothing here: its gradients read only what nodes outside ",
            "read, too, or what another scope makes again; leave it out");
    if (!useful.contains(scope) && first_time_logged(warning)) log_warning(warning);
  }
}

bool uses_a_variable_twice(const Graph& graph, std::span<const Variable> variables) {
  std::map<const Node*, const Node*> variable_of;  // what reads or writes it
  std::set<std::pair<std::string, const Node*>> uses;
  for (const Variable& variable : variables) variable_of[&variable.node()] = &variable.node();
  for (std::size_t id = 0; id < graph.size(); ++id) {
    const Node& node = graph.node(id);
    for (const Output& input : node.inputs()) {
      const auto found = variable_of.find(&input.node());
      if (found == variable_of.end()) continue;
      if (found->first == found->second)
        variable_of[&node] = found->second;
      else if (!uses.emplace(node.origin().prefix, found->second).second)
        return true;
    }
  }
  return false;
}

}  // namespace belfry
