// The nodes that a tower has added to its graph so far, and the variables that it uses.
#pragma once
#include <string_view>
#include <vector>

#include "belfry/framework/graph/graph.h"
#include "belfry/framework/graph/variable.h"

namespace belfry {

class TowerNodes {
 public:
  // The tower gets all nodes made from now on.
  explicit TowerNodes(Graph& graph) : graph_(graph), first_node_(graph.size()) {}

  Graph& graph() const { return graph_; }
  // Placeholders made in this tower, in order of creation.
  std::vector<Output> inputs() const;
  // Variables that the tower has made or used so far, in order of their creation in tower 0, so
  // they correspond from tower to tower. `prefix` selects those below one variable scope, e.g.
  // "disc".
  std::vector<Variable> variables(std::string_view prefix = {}) const;
  // The trained ones among variables().
  std::vector<Variable> trainables(std::string_view prefix = {}) const;
  // Nodes made in this tower so far that are in a collection, in its order.
  std::vector<Node*> nodes(std::string_view collection) const;
  // Variables that the tower has made so far.
  std::vector<Variable> own_variables() const;
  // Adds a variable that the tower uses, though none of its nodes does.
  void add_used(Variable variable) { used_.push_back(variable); }

 private:
  Graph& graph_;
  std::size_t first_node_;
  std::vector<Variable> used_;
};

}  // namespace belfry
