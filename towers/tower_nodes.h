// What a tower has added to the graph so far, and the variables that it uses.
#pragma once
#include <string_view>
#include <vector>

#include "belfry/framework/graph/graph.h"
#include "belfry/framework/graph/variable.h"

namespace belfry {

class TowerNodes {
 public:
  // Of all nodes that are made from now on.
  explicit TowerNodes(Graph& graph) : graph_(graph), first_node_(graph.size()) {}

  Graph& graph() const { return graph_; }
  // Placeholders made in this tower, in order of creation.
  std::vector<Output> inputs() const;
  // Variables that the tower has made or used so far, in order of their creation in tower 0 and so
  // corresponding from tower to tower. With a prefix, those below that variable scope, e.g. "disc".
  std::vector<Variable> variables(std::string_view prefix = {}) const;
  // Those of them that are trained.
  std::vector<Variable> trainables(std::string_view prefix = {}) const;
  // Nodes made in this tower so far that are in a collection, in its order.
  std::vector<Node*> nodes(std::string_view collection) const;
  // Variables that the tower has made so far.
  std::vector<Variable> own_variables() const;
  // It is used, though by no node of the tower.
  void add_used(Variable variable) { used_.push_back(variable); }

 private:
  Graph& graph_;
  std::size_t first_node_;
  std::vector<Variable> used_;
};

}  // namespace belfry
