#include <algorithm>

#include "belfry/framework/core_ops/copy.h"
#include "belfry/framework/graph/state.h"
#include "belfry/framework/passes/nodes.h"
#include "belfry/framework/passes/passes.h"

namespace belfry {
namespace {

class VariableCopies {
 public:
  explicit VariableCopies(PlanGraph& plan) : plan_(plan) {}

  void run() {
    const Consumers consumers = consumers_of(plan_);
    behind_.resize(plan_.nodes.size());
    for (const NodeIndex n : behind_.indices()) {
      PlanNode& node = plan_.nodes[n];
      if (node.op == &kRead && is_used({n, 0}, consumers[n])) node.op = &kCopy;
      const int written = std::min(node.writes(), static_cast<int>(node.types.size()));
      for (int i = 0; i < written; ++i)  // adds nodes, so `node` is not used here
        copy_result({n, i}, consumers[n]);
    }
    reorder();
  }

 private:
  bool is_used(Value value, std::span<const NodeIndex> consumers) const {
    return std::ranges::any_of(consumers, [&](NodeIndex consumer) {
      const auto& inputs = plan_.node(consumer).inputs;
      return std::ranges::find(inputs, value) != inputs.end();
    });
  }

  // Gives the users of a written value a copy of it.
  void copy_result(Value result, std::span<const NodeIndex> consumers) {
    if (!is_used(result, consumers)) return;
    PlanNode made{&kCopy, plan_.node(result.node).node, {result}, {}, {}, {}};
    made.types = {plan_.type(result)};
    made.devices = {plan_.device(result)};
    const NodeIndex copy = plan_.nodes.add(std::move(made));
    for (const NodeIndex user : consumers)
      std::ranges::replace(plan_.nodes[user].inputs, result, Value{copy, 0});
    behind_[result.node].push_back(copy);
  }

  // Puts storage first, then copies of values from before the run, then the other nodes in their
  // order. Each write is followed by its copies.
  void reorder() {
    std::vector<NodeIndex> order;
    const auto take = [&](const auto& wanted) {
      for (const NodeIndex n : behind_.indices()) {
        if (!wanted(plan_.nodes[n])) continue;
        order.push_back(n);
        order.insert(order.end(), behind_[n].begin(), behind_[n].end());
      }
    };
    const auto stored = [](const PlanNode& node) { return node.op->storage && node.after.empty(); };
    const auto first = [&](const PlanNode& node) {
      return node.op == &kCopy && node.after.empty() && stored(plan_.node(node.inputs[0].node));
    };
    take(stored);
    take(first);
    take([&](const PlanNode& node) { return !stored(node) && !first(node); });
    keep_nodes(plan_, order);
  }

  PlanGraph& plan_;
  NodeLists behind_;  // copies of the results of node n
};

}  // namespace

void copy_variables(PlanGraph& plan) { VariableCopies(plan).run(); }

}  // namespace belfry
