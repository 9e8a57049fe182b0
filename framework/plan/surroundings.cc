#include "belfry/framework/plan/surroundings.h"

#include <algorithm>

#include "belfry/framework/base/require.h"
#include "belfry/framework/graph/node.h"

namespace belfry {
namespace {

bool is_among(std::span<const NodeIndex> nodes, NodeIndex n) {
  return std::ranges::find(nodes, n) != nodes.end();
}

}  // namespace

bool reads_value(const PlanNode& node, Value value) {
  return std::ranges::any_of(node.inputs, [&](const Value& input) {
    return input.node == value.node && input.index == value.index;
  });
}

bool Surroundings::fits(NodeIndex n) const {
  const PlanNode &node = plan_.node(n), &root = plan_.node(root_);
  return free_[n] && node.device() == root.device() &&
         node.sharding.divides() == root.sharding.divides();
}

bool Surroundings::keeps_rows(NodeIndex n) const {
  const PlanNode& node = plan_.node(n);
  if (!node.op->alias || !node.after.empty() || node.inputs[0].shard != Value::kOwn ||
      node.device() != plan_.node(root_).device())
    return false;
  const TensorType &from = plan_.type(node.inputs[0]), &to = node.types[0];
  return from.dtype == to.dtype && from.shape.rank() > 0 && to.shape.rank() > 0 &&
         from.shape.back() == to.shape.back();
}

Value Surroundings::before_aliases(Value value) const {
  while (value.shard == Value::kOwn && keeps_rows(value.node))
    value = plan_.node(value.node).inputs[0];
  return value;
}

Value Surroundings::behind_aliases(Value value) const {
  for (;;) {
    const NodeIndex user = sole_user(value);
    if (!user || !keeps_rows(user)) return value;
    value = {user, 0};
  }
}

NodeIndex Surroundings::maker_for(NodeIndex user, Value value, const Op& op) const {
  for (;;) {
    if (is_used_by_others(value, {&user, 1})) return {};
    if (value.shard != Value::kOwn || !keeps_rows(value.node)) return maker(value, op);
    user = value.node;
    value = plan_.node(user).inputs[0];
  }
}

NodeIndex Surroundings::maker(Value value, const Op& op) const {
  const bool found = plan_.node(value.node).op == &op && value.shard == Value::kOwn;
  return found && fits(value.node) ? value.node : NodeIndex();
}

NodeIndex Surroundings::sole_user(Value value) const {
  NodeIndex only;
  for (const NodeIndex user : consumers_[value.node]) {
    const PlanNode& node = plan_.node(user);
    const bool waits = std::ranges::find(node.after, value.node) != node.after.end();
    if (!waits && !reads_value(node, value)) continue;
    if (only) return {};  // the second user may be the first one, which reads the value twice
    only = user;
  }
  return only;
}

NodeIndex Surroundings::only_user(Value value, const Op& op) const {
  const NodeIndex only = sole_user(value);
  return only && plan_.node(only).op == &op && fits(only) ? only : NodeIndex();
}

NodeIndex Surroundings::user(Value value, const Op& op) const {
  for (const NodeIndex user : consumers_[value.node])
    if (plan_.node(user).op == &op && reads_value(plan_.node(user), value) && fits(user))
      return user;
  return {};
}

bool Surroundings::depends_on(Value value, const Op& op) const {
  Indexed<PlanNode, char> seen(plan_.nodes.size());
  std::vector<NodeIndex> open{value.node};
  while (!open.empty()) {
    const NodeIndex n = open.back();
    open.pop_back();
    if (plan_.node(n).op == &op) return true;
    if (std::exchange(seen[n], true)) continue;
    for (const Value& input : plan_.node(n).inputs) open.push_back(input.node);
    const std::vector<NodeIndex>& after = plan_.node(n).after;
    open.insert(open.end(), after.begin(), after.end());
  }
  return false;
}

bool Surroundings::is_used_by_others(Value value, std::span<const NodeIndex> members) const {
  return std::ranges::any_of(consumers_[value.node], [&](NodeIndex user) {
    const PlanNode& node = plan_.node(user);
    const bool waits = std::ranges::find(node.after, value.node) != node.after.end();
    return !is_among(members, user) && (waits || reads_value(node, value));
  });
}

bool Surroundings::is_own(Value value, std::span<const NodeIndex> members) const {
  for (const NodeIndex n : members) {
    const PlanNode& member = plan_.node(n);
    const auto found = std::ranges::find(member.inputs, value);
    if (found != member.inputs.end()) return member.sharding.own[at(found - member.inputs.begin())];
  }
  throw InternalError(
      cat(plan_.node(root_).node->describe(), ": no member of a fusion reads ", plan_.name(value)));
}

void Surroundings::replace(const Op& op, std::vector<Value> inputs, std::vector<Value> results,
                           std::vector<NodeIndex> others) {
  others.push_back(root_);
  const PlanNode& root = plan_.node(root_);
  PlanNode node{&op, root.node, std::move(inputs), {}, {}, {}};
  for (const Value& result : results) {
    node.types.push_back(plan_.type(result));
    node.devices.push_back(root.device());
    if (root.sharding.divides()) node.sharding.outputs.push_back(plan_.division(result));
  }
  if (root.sharding.divides())
    for (const Value& input : node.inputs) node.sharding.own.push_back(is_own(input, others));
  node.rows = plan_.node(results[0].node).rows;
  made_ = {root_, std::move(node), std::move(others), std::move(results)};
}

}  // namespace belfry
