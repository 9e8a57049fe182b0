#include "belfry/framework/plan.h"

#include <algorithm>
#include <functional>
#include <queue>

#include "belfry/framework/core_ops/copy.h"
#include "belfry/framework/core_ops/transfer.h"
#include "belfry/framework/passes/passes.h"

namespace belfry {

std::string PlanNode::name() const {
  if (fetch >= 0) return cat(node->name(), "/fetch");
  if (op == &kTransfer) return cat(node->name(), "/transfer");
  if (op == &kCopy) return cat(node->name(), "/copy");
  return std::string(node->name());
}

Plan compile(std::span<const Fetch> fetches, std::span<const FeedType> feeds,
             const PlanContext& context) {
  Plan plan;
  plan.locks = context.locks;
  prune(plan, fetches, feeds);
  place(plan, context);
  add_transfers(plan, context);
  order_writes(plan);
  if (plan.locks == Locks::kEachVariable) copy_variables(plan);
  schedule(plan);
  prepare_kernels(plan, context);
  plan_memory(plan, context);
  return plan;
}

std::vector<std::vector<int>> consumers_of(const Plan& plan) {
  std::vector<std::vector<int>> consumers(plan.nodes.size());
  for (std::size_t n = 0; n < plan.nodes.size(); ++n) {
    for (const Value& input : plan.nodes[n].inputs)
      consumers[at(input.node)].push_back(static_cast<int>(n));
    for (const int before : plan.nodes[n].after)
      consumers[at(before)].push_back(static_cast<int>(n));
  }
  return consumers;
}

std::vector<int> users_of(const Plan& plan, const std::vector<std::vector<int>>& consumers,
                          Value value) {
  std::vector<int> users;
  std::vector<Value> open{value};
  while (!open.empty()) {
    const Value current = open.back();
    open.pop_back();
    for (const int next : consumers[at(current.node)]) {
      const PlanNode& user = plan.node(next);
      if (std::ranges::find(user.inputs, current) == user.inputs.end()) continue;
      if (user.op->alias)
        open.push_back({next, 0});
      else
        users.push_back(next);
    }
  }
  std::ranges::sort(users);
  const auto repeated = std::ranges::unique(users);
  users.erase(repeated.begin(), repeated.end());
  return users;
}

Value root_of(const Plan& plan, Value value) {
  for (;;) {
    const PlanNode& node = plan.node(value.node);
    const bool written = value.index < node.op->writes;
    if (!node.op->alias && !written) return value;
    value = node.inputs[at(written ? value.index : 0)];
  }
}

void sort_nodes(Plan& plan) {
  const auto consumers = consumers_of(plan);
  std::vector<std::size_t> missing(plan.nodes.size());
  for (const auto& list : consumers)
    for (const int consumer : list) ++missing[at(consumer)];
  // Nodes that passes appended go where their sources are, before what was created later. Writes go
  // as soon as they may: the gradients they read are still in cache, and their memory is free
  // after.
  const auto key = [&](int n) { return std::pair(plan.node(n).op->writes == 0, n); };
  std::priority_queue<std::pair<bool, int>, std::vector<std::pair<bool, int>>, std::greater<>>
      ready;
  for (std::size_t n = 0; n < plan.nodes.size(); ++n)
    if (missing[n] == 0) ready.push(key(static_cast<int>(n)));
  std::vector<int> moved(plan.nodes.size(), -1);
  std::vector<PlanNode> sorted;
  while (!ready.empty()) {
    const int n = ready.top().second;
    ready.pop();
    moved[at(n)] = static_cast<int>(sorted.size());
    sorted.push_back(std::move(plan.nodes[at(n)]));
    for (const int consumer : consumers[at(n)])
      if (--missing[at(consumer)] == 0) ready.push(key(consumer));
  }
  require<Internal>(sorted.size() == plan.nodes.size(), "the plan has a cycle");
  for (PlanNode& node : sorted) {
    for (Value& input : node.inputs) input.node = moved[at(input.node)];
    for (int& before : node.after) before = moved[at(before)];
  }
  plan.nodes = std::move(sorted);
}

int Plan::find(const Node& node) const {
  const auto found = std::ranges::find_if(nodes, [&](const PlanNode& planned) {
    return planned.node == &node && planned.op == &node.op() && planned.fetch < 0;
  });
  return found == nodes.end() ? -1 : static_cast<int>(found - nodes.begin());
}

std::vector<TensorType> Plan::input_types(const PlanNode& of) const {
  std::vector<TensorType> types;
  for (const Value& input : of.inputs) types.push_back(type(input));
  return types;
}

std::string Plan::name(Value value) const {
  const PlanNode& found = node(value.node);
  if (found.op == &kTransfer || found.op == &kCopy) return name(found.inputs[0]);
  if (found.feed >= 0) return feeds[at(found.feed)].where.name();
  return found.node->output(at(value.index)).name();
}

std::string Plan::str(const std::vector<std::unique_ptr<Device>>& devices) const {
  std::string out;
  for (std::size_t d = 0; d < arena_bytes.size(); ++d)
    if (arena_bytes[d] > 0)
      out += cat("arena ", devices[d]->spec, ": ", arena_bytes[d], " bytes\n");
  for (const Launch& launch : launches) {
    const PlanNode& planned = node(launch.node);
    out += cat(devices[at(lanes[at(launch.lane)].device)]->spec.str(), " #", launch.position, " ",
               planned.name(), ": (", planned.op->name, ")");
    for (const Wait& wait : launch.waits)
      out += cat(" after lane ", wait.lane, " #", wait.position);
    out += '\n';
  }
  return out;
}

}  // namespace belfry
