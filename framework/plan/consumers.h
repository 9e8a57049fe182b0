// Who uses the nodes of a plan.
#pragma once
#include <numeric>
#include <span>
#include <vector>

#include "belfry/framework/plan/plan_graph.h"

namespace belfry {

// Of each node those that come after it, in order. They lie in one list for all nodes, because
// passes make it often, for very many nodes that have few consumers.
class Consumers {
 public:
  // each_edge(f) calls f(before, n) for each node `n` that comes after `before`; the same each
  // time.
  Consumers(std::size_t nodes, const auto& each_edge) : ends_(nodes) {
    std::size_t edges = 0;
    each_edge([&](NodeIndex before, NodeIndex) { ++ends_[before], ++edges; });
    std::exclusive_scan(ends_.begin(), ends_.end(), ends_.begin(), std::size_t{0});
    all_.resize(edges);
    // Each end moves from where the consumers of its node begin to where they end.
    each_edge([&](NodeIndex before, NodeIndex n) { all_[ends_[before]++] = n; });
  }

  std::span<const NodeIndex> operator[](NodeIndex n) const {
    const std::size_t begin = n.value() == 0 ? 0 : ends_[NodeIndex(n.value() - 1)];
    return std::span(all_).subspan(begin, ends_[n] - begin);
  }
  std::size_t size() const { return ends_.size(); }
  auto indices() const { return ends_.indices(); }

 private:
  Indexed<PlanNode, std::size_t> ends_;  // of the consumers of each node, in all_
  std::vector<NodeIndex> all_;
};

}  // namespace belfry
