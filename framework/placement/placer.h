// The placer: a device for every output of a graph, by the rules of TensorFlow 1.15.
//
// Nodes with inputs go first, in the order of the graph, each to the first candidate of its
// colocation set. Metadata ops (Op::metadata) go to the device of their input, if it is a
// candidate. Generators (no inputs, one output, not a variable) follow: where all their consumers
// are, if they agree, else to the first candidate. A variable that has memory stays where it is. A
// fed tensor is where it would be computed.
//
// Two rules are not TensorFlow's. A collective has no single device: its outputs are where its
// inputs are, and its request is ignored. Nodes colocated with it go where its first output is, if
// they can. Nodes that cannot be placed have no device, and do not count as consumers. Plans that
// contain them fail, while TensorFlow refuses every run of their graph.
#pragma once
#include <map>
#include <string_view>
#include <vector>

#include "belfry/framework/placement/colocation.h"

namespace belfry {

class Placer {
 public:
  // Places the graph. The context must outlive this.
  Placer(const Graph& graph, const PlacementContext& context);

  // The device of each node, by id; -1 if it has none.
  const std::vector<int>& devices() const { return devices_; }
  // The devices of the outputs of collectives.
  const std::map<int, std::vector<int>>& collectives() const { return collectives_; }
  // Nodes that were placed in the second pass.
  const std::vector<char>& late() const { return late_; }

  Colocation& colocation() { return colocation_; }
  // Why node n has its device: "the first candidate", ...
  std::string_view reason(int n) const { return reasons_[at(n)]; }
  // Throws InvalidArgument saying why node n has none.
  [[noreturn]] void refuse(int n);

 private:
  bool waits(const Node& node) const;
  void ask_consumers();
  void settle(const Node& node);
  int beside_input(const Node& node, const std::vector<int>& candidates) const;
  int beside_consumers(const Node& node, const std::vector<int>& candidates) const;
  int known_device(const Output& output) const;
  void assign(const Node& node, int device, std::string_view reason);
  void assign_collective(const Node& node);

  const Graph& graph_;
  const PlacementContext& context_;
  Colocation colocation_;
  std::vector<int> devices_;
  std::map<int, std::vector<int>> collectives_;
  std::vector<char> late_;
  std::vector<int> beside_;  // for generators: where all consumers are; else negative
  std::vector<std::string_view> reasons_;
};

}  // namespace belfry
