// Frees activations that one pass over memory can recompute (Op::rematerialise), such as those of
// batch norm with ReLU. The backward pass reads them, so they would all be kept until then. Their
// inputs are kept anyway, for other gradients. So the backward pass recomputes each activation just
// before it reads it. GPUs keep them: nobody has measured what the passes would cost there.
#include <algorithm>
#include <map>
#include <set>
#include <span>
#include <utility>

#include "belfry/framework/passes/nodes.h"
#include "belfry/framework/passes/passes.h"
#include "belfry/framework/plan/surroundings.h"

namespace belfry {
namespace {

class Rematerialiser {
 public:
  explicit Rematerialiser(PlanGraph& plan)
      : plan_(plan),
        consumers_(consumers_of(plan)),
        recomputed_(recomputed_nodes(plan)),
        free_(plan.nodes.size()),
        rematerialised_(plan.nodes.size()) {}

  void run(std::span<const NodeIndex> candidates) {
    for (const NodeIndex n : candidates) consider(n);
    if (made_.empty()) return;
    for (auto& [first, again] : made_) put(first, std::move(again));
    keep_nodes(plan_, order());
    sort_nodes(plan_);
  }

 private:
  // Nodes that the backward pass recomputes (gradients.h) count as forward: their outputs are
  // activations.
  bool is_backward(NodeIndex n) const {
    const Node& node = *plan_.node(n).node;
    return node.origin().forward && !recomputed_.contains(&node);
  }

  std::vector<NodeIndex> readers_in_backward(Value value) const {
    std::vector<NodeIndex> readers;
    for (const NodeIndex n : consumers_[value.node])
      if (is_backward(n) && reads_value(plan_.node(n), value)) readers.push_back(n);
    return readers;
  }

  // Whether a value is in memory during the backward pass anyway.
  bool is_kept(Value value) const {
    if (rematerialised_[value.node] && value.index == 0) return false;
    return plan_.node(root_of(plan_, value).node).op->storage ||
           !readers_in_backward(value).empty();
  }

  void consider(NodeIndex n) {
    if (is_backward(n) || readers_in_backward({n, 0}).empty()) return;
    Surroundings around(plan_, consumers_, free_, n, false);
    plan_.node(n).op->rematerialise(around);
    std::optional<FusedNodes> made = around.take();
    if (!made || !std::ranges::all_of(made->node.inputs, [&](Value v) { return is_kept(v); }))
      return;
    made->node.role = PlanNode::Rematerialised();
    rematerialised_[n] = true;
    made_.emplace_back(n, std::move(made->node));
  }

  void put(NodeIndex first, PlanNode again) {
    const NodeIndex rematerialised = plan_.nodes.add(std::move(again));
    const std::vector<NodeIndex> readers = readers_in_backward({first, 0});
    for (const NodeIndex reader : readers)
      for (Value& input : plan_.nodes[reader].inputs)
        if (input.node == first && input.index == 0) input.node = rematerialised;
    before_[*std::ranges::min_element(readers)].push_back(rematerialised);
  }

  // Puts each new node just before its first reader, so that the activation lives briefly.
  std::vector<NodeIndex> order() const {
    std::vector<NodeIndex> order;
    order.reserve(plan_.nodes.size());
    for (std::size_t n = 0; order.size() < plan_.nodes.size(); ++n) {
      if (const auto rematerialised = before_.find(NodeIndex(n)); rematerialised != before_.end())
        order.insert(order.end(), rematerialised->second.begin(), rematerialised->second.end());
      order.push_back(NodeIndex(n));
    }
    return order;
  }

  PlanGraph& plan_;
  Consumers consumers_;
  const std::set<const Node*> recomputed_;
  Indexed<PlanNode, char> free_;            // all false: no node may become part of a fusion
  Indexed<PlanNode, char> rematerialised_;  // output 0 is recomputed for the backward pass
  std::vector<std::pair<NodeIndex, PlanNode>> made_;
  std::map<NodeIndex, std::vector<NodeIndex>> before_;  // by first reader
};

}  // namespace

void rematerialise(PlanGraph& plan, const PlanContext& context) {
  if (!context.options.fuse || context.options.reference_kernels) return;
  std::vector<NodeIndex> candidates;
  for (const NodeIndex n : plan.nodes.indices())
    if (plan.node(n).op->rematerialise && !context.device(plan.node(n).device()).on_gpu())
      candidates.push_back(n);
  if (!candidates.empty()) Rematerialiser(plan).run(candidates);
}

}  // namespace belfry
