#include <algorithm>

#include "belfry/framework/core_ops/copy.h"
#include "belfry/framework/graph/state.h"
#include "belfry/framework/passes/passes.h"

namespace belfry {
namespace {

class VariableCopies {
 public:
  explicit VariableCopies(PlanGraph& plan) : plan_(plan) {}

  void run() {
    const std::vector<std::vector<int>> consumers = consumers_of(plan_);
    const std::size_t nodes = plan_.nodes.size();
    behind_.resize(nodes);
    for (std::size_t n = 0; n < nodes; ++n) {
      PlanNode& node = plan_.nodes[n];
      if (node.op == &kRead && is_used({static_cast<int>(n), 0}, consumers[n])) node.op = &kCopy;
      const int written = std::min(node.writes(), static_cast<int>(node.types.size()));
      for (int i = 0; i < written; ++i)  // which adds nodes, so `node` is not used here
        copy_result({static_cast<int>(n), i}, consumers[n]);
    }
    reorder(nodes);
  }

 private:
  bool is_used(Value value, const std::vector<int>& consumers) const {
    return std::ranges::any_of(consumers, [&](int consumer) {
      const auto& inputs = plan_.node(consumer).inputs;
      return std::ranges::find(inputs, value) != inputs.end();
    });
  }

  // Users of what a write left get a copy of it.
  void copy_result(Value result, const std::vector<int>& consumers) {
    if (!is_used(result, consumers)) return;
    const int copy = static_cast<int>(plan_.nodes.size());
    PlanNode made{&kCopy, plan_.node(result.node).node, {result}, {}, {}, {}};
    made.types = {plan_.type(result)};
    made.devices = {plan_.device(result)};
    for (const int user : consumers)
      std::ranges::replace(plan_.nodes[at(user)].inputs, result, Value{copy, 0});
    behind_[at(result.node)].push_back(copy);
    plan_.nodes.push_back(std::move(made));
  }

  // Storage, then copies of what the run finds in it, then the rest as it was, each write with its
  // copies behind it.
  void reorder(std::size_t nodes) {
    std::vector<int> order;
    const auto take = [&](const auto& wanted) {
      for (std::size_t n = 0; n < nodes; ++n) {
        if (!wanted(plan_.nodes[n])) continue;
        order.push_back(static_cast<int>(n));
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
  std::vector<std::vector<int>> behind_;  // copies of what node n left
};

}  // namespace

void copy_variables(PlanGraph& plan) { VariableCopies(plan).run(); }

}  // namespace belfry
