// Sums the contributions to a gradient, and places the nodes that gradients need. For gradients.cc
// and recompute.cc.
#pragma once
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "belfry/framework/graph/scopes.h"

namespace belfry {

// Places new nodes where `output` is. Outputs of a collective are on several devices, so its device
// is named; with any other output, new nodes are colocated.
class Beside {
 public:
  explicit Beside(Output output) {
    if (!output.node().op().collective) {
      colocated_.emplace(output);
    } else {
      colocated_.emplace(output.graph(), nullptr);
      on_.emplace(output.graph(), output.device(), output.node().origin().site);
    }
  }

 private:
  std::optional<ColocateWith> colocated_;
  std::optional<DeviceScope> on_;
};

// Marks nodes made inside as built for `node` (NodeOrigin::forward).
class ForwardScope {
 public:
  ForwardScope(Graph& graph, const Node& node) : graph_(graph), outer_(graph.scopes().forward) {
    graph_.scopes().forward = &node;
  }
  ~ForwardScope() { graph_.scopes().forward = outer_; }
  ForwardScope(const ForwardScope&) = delete;
  ForwardScope& operator=(const ForwardScope&) = delete;

 private:
  Graph& graph_;
  const Node* outer_;
};

// One contribution to the gradient of an output: from input `slot` of node `consumer`.
struct GradientUse {
  int consumer;
  std::size_t slot;
  Output value;
};

// The canonical tree over `uses`, which are in order; nodes are called `name`. Subtrees on one
// device are one node; gradients.h says where each is placed. `beside_x`: where the whole sum is
// placed if its uses are on several devices; empty: where most uses are.
Output sum_uses(std::span<const GradientUse> uses, const std::string& name, Output beside_x = {});

// Turns `values` into identities that become available together, each on the device of its value.
// Empty ones stay empty.
void make_available_together(Graph& graph, std::vector<Output>& values);

}  // namespace belfry
