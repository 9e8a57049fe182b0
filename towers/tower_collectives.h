// Nodes that all towers of one replicate() call build together, such as synchronised batch norm.
#pragma once
#include <string>
#include <string_view>
#include <vector>

#include "belfry/framework/graph/graph.h"

namespace belfry {

// Tower 0 makes a node from its inputs; each other tower adds its own inputs at the same place in
// its function. Towers must reach the same nodes in the same order. This is checked while the graph
// is built, so no run can hang.
class TowerCollectives {
 public:
  explicit TowerCollectives(Graph& graph) : graph_(graph), first_node_(graph.size()) {}

  // Tower `tower` reaches its next node, which `what` names. A node has the inputs of tower 0
  // first, then those of tower 1, and so on. Throws InvalidArgument naming both lines unless tower
  // 0 has the same op and name there.
  Node& join(int tower, const Op& op, std::span<const Output> inputs, std::string_view what, At at,
             NodeOptions options);
  // Throws InvalidArgument if the tower, replicated at `call`, did not reach some node, whose line
  // it names.
  void end_tower(int tower, SourceLine call);
  // Call it after the last tower.
  void close() { graph_.close(first_node_); }

 private:
  struct Entry {
    Node* node;
    std::string what;
    SourceLine site;
  };

  Graph& graph_;
  std::size_t first_node_;
  std::vector<Entry> entries_;  // in the order of tower 0
  std::size_t next_ = 0;        // of the tower being built
};

}  // namespace belfry
