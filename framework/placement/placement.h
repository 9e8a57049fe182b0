// Where all nodes of a graph are. A session places the graph when it first plans, and again when
// the graph has grown. Plans look devices up, so no placement depends on what is fetched.
#pragma once
#include <cstdint>
#include <map>
#include <memory>
#include <vector>

#include "belfry/framework/plan/plan.h"

namespace belfry {

// What the placer knows of a session.
struct PlacementContext {
  const std::vector<std::unique_ptr<Device>>& devices;
  bool allow_soft_placement = false;
  bool log_device_placement = false;
  std::map<const Node*, int> memory = {};  // the devices of variables that have some

  const Device& device(int index) const { return *devices[at(index)]; }
  // The device where a variable has memory; -1 for other nodes.
  int memory_of(const Node& node) const {
    const auto found = memory.find(&node);
    return found == memory.end() ? -1 : found->second;
  }
};

class Placement {
 public:
  // Places all nodes that can be placed, by the rules of placer.h. Throws InvalidArgument if nodes
  // of the graph are open.
  Placement(const Graph& graph, PlacementContext context);

  // The devices of all outputs of a node; at least one, the node's own. Throws InvalidArgument
  // saying why it cannot be placed.
  std::vector<int> devices(const Node& node) const;
  int device(const Output& output) const;
  // Whether the node was placed after nodes with inputs: it is a generator (placer.h), or a
  // collective whose input is one.
  bool late(const Node& node) const { return late_[at(node.id())] != 0; }

  // Whether this is still the placement of the graph.
  bool current() const { return graph_.version() == version_; }
  const Graph& graph() const { return graph_; }
  const PlacementContext& context() const { return context_; }

 private:
  const Graph& graph_;
  PlacementContext context_;
  std::uint64_t version_;
  std::vector<int> devices_;  // by id; -1: none
  std::vector<char> late_;
  std::map<int, std::vector<int>> collectives_;
};

}  // namespace belfry
