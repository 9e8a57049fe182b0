// Forward nodes that are computed again for the backward pass. For gradients.cc.
#pragma once
#include <map>
#include <set>
#include <span>
#include <string>
#include <utility>

#include "belfry/framework/graph/graph.h"

namespace belfry {

// Makes second copies of nodes, as they are asked for. What a copy is made of is copied, too, as
// far as it is in the same scope and nothing outside the scope uses it; the rest are the tensors
// that are there. A copy has the bits of the first. It waits until the backward pass has come to
// its scope, as it would take memory before. Copies that nobody reads are pruned as all such nodes.
class Recomputation {
 public:
  // `scopes` as in GradientOptions::recompute.
  Recomputation(Graph& graph, std::span<const std::string> scopes);

  // What stands for `node` where it is differentiated: its copy, or itself in no scope. `grads`: of
  // its outputs; empty where there is none.
  Node& again(Node& node, std::span<const Output> grads);

 private:
  const std::string& scope_of(const Node& node);
  bool is_copied(const Node& node, const std::string& scope);
  void note_uses();

  Graph& graph_;
  std::span<const std::string> scopes_;
  std::map<const Node*, std::string> scope_;
  std::map<const Node*, Node*> copies_;
  std::set<std::pair<int, int>> leaving_;  // outputs that another scope, or none, uses
};

}  // namespace belfry
