// The sets of nodes that must share a device, and the devices that each may have. They come from
// the whole graph, so they are the same whatever is run, in whatever order.
//
// The rules and texts are those of TensorFlow 1.15's colocation graph. Texts show {{node n}} as its
// client does, "node n (defined at file:line) ", and {{colocation_node n}} as "n (defined at
// file:line)". Four things differ. Equal devices are ordered by number, not by name (GPU:2 before
// GPU:10). Requests cannot be malformed, because a DeviceSpec has been parsed. A contradiction is
// an error only of the nodes involved, while TensorFlow refuses every run. If a graph has grown,
// and new nodes contradict a variable that has memory, only the new nodes are refused. Under soft
// placement two sets without a common kernel stay apart, each with its own request, while
// TensorFlow leaves the merged request with one of them.
#pragma once
#include <map>
#include <string>
#include <string_view>
#include <vector>

#include "belfry/framework/placement/colocation_sets.h"

namespace belfry {

// `pulled` and all its set joined the set of `puller`; a reference edge if `group` is empty.
struct ColocationJoin {
  int puller, pulled;
  std::string_view group;  // named as a node of the graph is
};

struct ColocationJoins {
  std::vector<ColocationJoin> joins;
  std::map<int, std::string> alone;  // nodes that are refused without their sets, and why
};

// Joins the nodes of the graph. Initially each node is its own set in `sets` (colocation_joins.cc).
ColocationJoins join_nodes(const Graph& graph, const PlacementContext& context,
                           TypedDevices& devices, ColocationSets& sets);

class Colocation {
 public:
  Colocation(const Graph& graph, const PlacementContext& context);
  Colocation(const Colocation&) = delete;
  Colocation& operator=(const Colocation&) = delete;

  // The devices that a node may have, best first; none if it cannot be placed.
  const std::vector<int>& candidates(int n);
  // Binds the node's set to a device.
  void assign(int n, int device);
  // Whether the node contradicts another one, or has no kernel.
  bool refused(int n) { return joined_.alone.contains(n) || !set(n).refusal.empty(); }
  // Throws InvalidArgument saying why a node is refused or has no candidates.
  [[noreturn]] void refuse(int n);

  ColocationSet& set(int n) { return sets_.of(n); }
  // In the order of the graph.
  std::vector<int> members(int n) { return sets_.members(n); }
  const std::vector<ColocationJoin>& joins() const { return joined_.joins; }
  // Why a device is not among the candidates of a node, "" if it is.
  std::string refusal(int n, int device);
  // Why a variable is not where it was requested.
  std::string why_moved(int n) const { return texts_.why_moved(n); }

 private:
  const std::vector<int>& soften(int n);

  const PlacementContext& context_;
  TypedDevices devices_;
  ColocationSets sets_;
  ColocationTexts texts_;
  ColocationJoins joined_;
};

}  // namespace belfry
