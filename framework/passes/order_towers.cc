// A sum over towers waits for the last tower, and until then keeps the tensors of the others. So
// towers go side by side: each node comes next to its counterpart in the first tower. In the order
// in which they were built, the last tower would come after all others.
#include <algorithm>
#include <map>
#include <string_view>
#include <vector>

#include "belfry/framework/graph/node.h"
#include "belfry/framework/passes/nodes.h"
#include "belfry/framework/passes/passes.h"

namespace belfry {
namespace {

class SideBySide {
 public:
  explicit SideBySide(const PlanGraph& plan) : plan_(plan) {
    for (const NodeIndex n : plan.nodes.indices()) {
      const int call = origin(n).call;
      if (call > 0) nodes_of_[call].push_back(n);
      place_.push_back(n);
    }
    const std::vector<NodeIndex>* first = nullptr;
    int last_replica = 0;
    for (const auto& [call, nodes] : nodes_of_) {
      const int replica = origin(nodes.front()).replica;
      if (first && replica > last_replica)
        place_beside(*first, nodes);
      else
        first = &nodes;
      last_replica = replica;
    }
  }

  bool changes() const { return changes_; }
  // A node of no tower comes after the node that was built before it.
  std::vector<NodeIndex> order() {
    for (std::size_t n = 1; n < place_.size(); ++n)
      if (const NodeIndex own(n); origin(own).call == 0 && place_[own] == own)
        place_[own] = place_[NodeIndex(n - 1)];
    std::vector<NodeIndex> order(plan_.nodes.indices().begin(), plan_.nodes.indices().end());
    std::ranges::stable_sort(order, {}, [&](NodeIndex n) { return place_[n]; });
    return order;
  }

 private:
  // Towers may differ in a few nodes. A node without a counterpart in the other tower, such as a
  // variable that all share, is at most this far from one with a counterpart.
  static constexpr std::size_t kFar = 64;

  const NodeOrigin& origin(NodeIndex n) const { return plan_.node(n).node->origin(); }
  std::string_view name(NodeIndex n) const { return plan_.node(n).node->logical_name(); }

  void place_beside(const std::vector<NodeIndex>& first, const std::vector<NodeIndex>& nodes) {
    changes_ = true;
    std::size_t next = 0;
    for (const NodeIndex n : nodes) {
      const std::size_t end = std::min(first.size(), next + kFar);
      std::size_t like = next;
      while (like < end && name(first[like]) != name(n)) ++like;
      if (like < end) next = like + 1;
      place_[n] = next == 0 ? first.front() : first[next - 1];
    }
  }

  const PlanGraph& plan_;
  std::map<int, std::vector<NodeIndex>> nodes_of_;  // by call
  Indexed<PlanNode, NodeIndex> place_;
  bool changes_ = false;
};

}  // namespace

void order_towers(PlanGraph& plan) {
  SideBySide towers(plan);
  if (!towers.changes()) return;
  keep_nodes(plan, towers.order());
  sort_nodes(plan);
}

}  // namespace belfry
