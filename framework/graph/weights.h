// Which variables of a graph are weights, and which are state.
//
// Code that makes a variable that is not a weight adds it to one of these collections, in addition
// to kGlobalVariables or kLocalVariables: VariableOptions{.collections =
// {std::string(kGlobalVariables), std::string(kStateVariables)}}.
#pragma once
#include <set>
#include <string_view>
#include <vector>

#include "belfry/framework/graph/graph.h"
#include "belfry/framework/graph/variable_role.h"

namespace belfry {

inline constexpr std::string_view kStateVariables = "state_variables";
inline constexpr std::string_view kAverageVariables = "average_variables";

// The roles of all variables that a graph has now.
class VariableRoles {
 public:
  explicit VariableRoles(const Graph& graph);
  VariableRole of(const Node& variable) const;

 private:
  std::set<const Node*> averages_, state_;
};

// The weights that are not copies: global ones, and local ones that are trained.
std::vector<Variable> weights_of(const Graph& graph);
// Local weights that are not trained and no copies. No checkpoint keeps them.
std::vector<Variable> unsaved_weights_of(const Graph& graph);

}  // namespace belfry
