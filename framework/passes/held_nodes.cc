#include "belfry/framework/passes/held_nodes.h"

#include <algorithm>
#include <utility>

#include "belfry/framework/core_ops/assign_gathered.h"
#include "belfry/framework/core_ops/between_processes.h"
#include "belfry/framework/graph/graph.h"

namespace belfry {
namespace {

// Whether other processes or GPUs compute a node's results while its device does something else.
bool communicates(const PlanNode& node) { return node.op->exchange || node.op->ranks; }

// All processes order their messages by this size.
std::int64_t bytes_of_messages(const PlanNode& node) {
  return node.op->exchange ? row_bytes(*node.node) : node.types[0].bytes();
}

}  // namespace

bool writes_gathered_first(const PlanGraph& plan, const PlanNode& node) {
  return node.op == &kAssignGathered && !plan.gathered_first.empty();
}

AwaitingNodes::AwaitingNodes(const PlanGraph& plan)
    : plan_(plan),
      due_(plan.nodes.size()),
      follows_message_(plan.nodes.size()),
      leads_to_messages_(plan.nodes.size()) {
  constexpr std::int64_t kMostUnderWay = 16 << 20;
  std::int64_t all = 0;
  for (const PlanNode& node : plan.nodes)
    if (communicates(node)) all += bytes_of_messages(node);
  if (all > 0) find_what_leads_to_messages();
  // Values that were gathered first need not be sent again, so no message waits for delayed nodes.
  most_under_way_ = plan.gathered_first.empty() ? kMostUnderWay : 3 * kMostUnderWay;
  under_way_ = std::min(plan.gathered_first.empty() ? all / 8 : all / 4, most_under_way_);
}

void AwaitingNodes::find_what_leads_to_messages() {
  std::vector<NodeIndex> open;
  for (const NodeIndex n : plan_.nodes.indices())
    if (communicates(plan_.nodes[n])) open.push_back(n);
  while (!open.empty()) {
    const PlanNode& node = plan_.nodes[open.back()];
    open.pop_back();
    for (const Value& input : node.inputs)
      if (!std::exchange(leads_to_messages_[input.node], true)) open.push_back(input.node);
  }
}

void AwaitingNodes::place(NodeIndex n) {
  const PlanNode& node = plan_.node(n);
  if (begun_ == 0 && !communicates(node)) return;  // as all nodes of most plans
  for (const Value& input : node.inputs) follows_message_[n] |= follows_message_[input.node];
  if (!node.launches()) due_[n] = due(node);
  if (!communicates(node)) return;
  if (!follows_message_[n]) begun_ += bytes_of_messages(node);
  due_[n] = begun_ + under_way_;
  follows_message_[n] = true;
}

bool AwaitingNodes::hold(NodeIndex n) {
  if (begun_ == 0) return false;
  const PlanNode& node = plan_.node(n);
  if (due(node) == 0 || !node.launches() || communicates(node) ||
      writes_gathered_first(plan_, node))
    return false;
  held_.push_back({n, due(node) + (leads_to_messages_[n] ? 0 : most_under_way_ - under_way_)});
  return true;
}

std::optional<NodeIndex> AwaitingNodes::take(bool any) {
  auto next =
      std::ranges::find_if(held_, [&](const DelayedNode& held) { return held.due <= begun_; });
  if (next == held_.end() && any) next = held_.begin();
  if (next == held_.end()) return std::nullopt;
  const NodeIndex n = next->node;
  held_.erase(next);
  return n;
}

std::int64_t AwaitingNodes::due(const PlanNode& node) const {
  std::int64_t latest = 0;
  for (const Value& input : node.inputs) latest = std::max(latest, due_[input.node]);
  return latest;
}

MessageOrder::MessageOrder(const PlanGraph& plan) : plan_(plan) {
  for (const PlanNode& node : plan.nodes)
    if (node.op->exchange) missing_.push_back(node.node);
  if (!missing_.empty()) find_levels(missing_[0]->graph());
}

bool MessageOrder::hold(NodeIndex n, bool eager) {
  if (eager || !plan_.node(n).op->exchange || !must_wait(*plan_.node(n).node)) return false;
  held_.push_back(n);
  return true;
}

std::vector<NodeIndex> MessageOrder::place(NodeIndex n) {
  if (!plan_.node(n).op->exchange) return {};
  const auto found = std::ranges::find(missing_, plan_.node(n).node);
  if (found != missing_.end()) missing_.erase(found);
  return release([&](NodeIndex held) { return !must_wait(*plan_.node(held).node); });
}

std::vector<NodeIndex> MessageOrder::give_up() {
  return release([](NodeIndex) { return true; });
}

void MessageOrder::find_levels(const Graph& graph) {
  levels_.resize(graph.size());
  for (std::size_t id = 0; id < graph.size(); ++id)
    for (const Output& input : graph.node(id).inputs()) {
      const Node& from = input.node();
      levels_[id] = std::max(levels_[id], level(from) + (from.op().exchange ? 1 : 0));
    }
}

bool MessageOrder::must_wait(const Node& node) const {
  return std::ranges::any_of(missing_, [&](const Node* other) {
    return other->id() < node.id() && level(*other) <= level(node);
  });
}

std::vector<NodeIndex> MessageOrder::release(const std::function<bool(NodeIndex)>& may_go) {
  std::vector<NodeIndex> released;
  std::erase_if(held_, [&](NodeIndex n) {
    if (!may_go(n)) return false;
    released.push_back(n);
    return true;
  });
  return released;
}

}  // namespace belfry
