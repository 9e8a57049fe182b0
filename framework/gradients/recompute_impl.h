// Forward nodes that are recomputed for the backward pass. For gradients.cc.
#pragma once
#include <map>
#include <set>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "belfry/framework/graph/graph.h"
#include "belfry/framework/graph/scope_stack.h"

namespace belfry {

// Copies nodes when the backward pass needs their outputs, along with the nodes of their scope that
// they depend on. Copies read the tensors that the backward pass has anyway: those that leave the
// scope, those of several towers, and small ones. A copy has the bits of the first node. It waits
// until the backward pass reaches its scope; before, it would only take memory.
class Recomputation final : SubstituteOutputs {
 public:
  // `scopes` as in GradientOptions::recompute.
  Recomputation(Graph& graph, std::span<const std::string> scopes);

  // Call it when the backward pass reaches a node. `grads`: of its outputs; empty if there are
  // none.
  void enter(const Node& node, std::span<const Output> grads);

  // While it lives, new nodes take outputs of copies instead of those of the forward pass.
  class Scope {
   public:
    explicit Scope(Recomputation& all) : graph_(all.graph_) {
      if (!all.scopes_.empty()) graph_.scopes().substitutes = &all;
    }
    ~Scope() { graph_.scopes().substitutes = nullptr; }
    Scope(const Scope&) = delete;
    Scope& operator=(const Scope&) = delete;

   private:
    Graph& graph_;
  };

 private:
  // A scope of one tower.
  using Part = std::pair<int, std::string>;

  Output of(const Output& tensor) override;
  const std::string& scope_of(const Node& node);
  Part part_of(const Node& node) { return {node.origin().call, scope_of(node)}; }
  bool is_copied(const Node& node);
  bool is_kept(const Output& tensor);
  Node& copy_of(const Node& node);
  void note_uses();

  Graph& graph_;
  std::span<const std::string> scopes_;
  const int forward_nodes_;  // nodes of the forward pass, which are the first of the graph
  const std::string names_;  // the name scope of copies
  std::map<const Node*, std::string> scope_;
  std::map<const Node*, Node*> copies_;
  std::map<Part, std::vector<Output>> awaited_by_copies_;
  std::set<std::pair<int, int>> leaving_;  // outputs that another scope, or none, uses
};

}  // namespace belfry
