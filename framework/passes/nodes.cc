// What passes share: questions about the nodes of a plan, their order, and their replacement. Each
// device launches its nodes in this order. So it decides how soon gradients are combined, and how
// long tensors keep their memory. It depends on the plan alone, so that runs repeat.
#include <algorithm>
#include <functional>
#include <queue>
#include <utility>

#include "belfry/framework/base/sort_unique_impl.h"
#include "belfry/framework/core_ops/copy.h"
#include "belfry/framework/core_ops/gather_shards.h"
#include "belfry/framework/passes/passes.h"

namespace belfry {

std::vector<std::vector<int>> consumers_of(const PlanGraph& plan) {
  std::vector<std::vector<int>> consumers(plan.nodes.size());
  for (std::size_t n = 0; n < plan.nodes.size(); ++n) {
    for (const Value& input : plan.nodes[n].inputs)
      consumers[at(input.node)].push_back(static_cast<int>(n));
    for (const int before : plan.nodes[n].after)
      consumers[at(before)].push_back(static_cast<int>(n));
  }
  return consumers;
}

std::vector<int> users_of(const PlanGraph& plan, const std::vector<std::vector<int>>& consumers,
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
  sort_unique(users);
  return users;
}

std::vector<char> reached_from(const std::vector<std::vector<int>>& consumers,
                               std::span<const int> starts) {
  std::vector<char> reached(consumers.size());
  std::vector<int> open(starts.begin(), starts.end());
  while (!open.empty()) {
    const int n = open.back();
    open.pop_back();
    if (std::exchange(reached[at(n)], true)) continue;
    open.insert(open.end(), consumers[at(n)].begin(), consumers[at(n)].end());
  }
  return reached;
}

std::vector<int> Walker::reached_from(const std::vector<std::vector<int>>& consumers,
                                      std::span<const int> starts) {
  marks_.resize(std::max(marks_.size(), consumers.size()));
  std::vector<int> reached;
  const auto visit = [&](int n) {
    if (!std::exchange(marks_[at(n)], true)) reached.push_back(n);
  };
  for (const int n : starts) visit(n);
  for (std::size_t i = 0; i < reached.size(); ++i)
    for (const int n : consumers[at(reached[i])]) visit(n);
  for (const int n : reached) marks_[at(n)] = false;
  std::ranges::sort(reached);
  return reached;
}

std::vector<std::vector<int>> launch_deps(const PlanGraph& plan) {
  std::vector<std::vector<int>> deps(plan.nodes.size());
  for (std::size_t n = 0; n < plan.nodes.size(); ++n) {
    const auto add = [&](int earlier) {
      const std::vector<int>& through = deps[at(earlier)];
      if (plan.node(earlier).launches())
        deps[n].push_back(earlier);
      else
        deps[n].insert(deps[n].end(), through.begin(), through.end());
    };
    for (const Value& input : plan.nodes[n].inputs) add(input.node);
    for (const int earlier : plan.nodes[n].after) add(earlier);
    sort_unique(deps[n]);
  }
  return deps;
}

Value root_of(const PlanGraph& plan, Value value) {
  value.shard = Value::kOwn;
  for (;;) {
    const PlanNode& node = plan.node(value.node);
    const bool written = value.index < node.writes();
    if (!node.op->alias && !written) return value;
    value = node.inputs[at(written ? value.index : 0)];
    value.shard = Value::kOwn;
  }
}

namespace {

// Whether a node reads partial sums, which take memory for every shard.
bool reads_partial_sums(const PlanGraph& plan, const PlanNode& node) {
  return std::ranges::any_of(
      node.inputs, [&](const Value& input) { return plan.division(input) == Division::partial(); });
}

// eager[n]: node n goes as soon as it may. Writes, collectives and what makes shards whole do, or
// reads their partial sums: what they read is still in cache, and its memory is free after. Copies
// go with those who wait for them, and what costs nothing keeps nobody waiting.
std::vector<char> find_eager(const PlanGraph& plan,
                             const std::vector<std::vector<int>>& consumers) {
  std::vector<char> eager(plan.nodes.size());
  for (std::size_t n = plan.nodes.size(); n-- > 0;) {
    const PlanNode& node = plan.nodes[n];
    if (!node.launches())
      eager[n] = true;
    else if (node.op == &kCopy)
      eager[n] = std::ranges::any_of(consumers[n], [&](int user) { return eager[at(user)]; });
    else
      eager[n] = node.writes() > 0 || node.op->collective || node.node->origin().eager ||
                 node.op == &kGatherShards || reads_partial_sums(plan, node);
  }
  return eager;
}

// The nodes in their new order, fewer on a cycle.
std::vector<int> sorted_nodes(const PlanGraph& plan) {
  const auto consumers = consumers_of(plan);
  std::vector<std::size_t> missing(plan.nodes.size());
  for (const auto& list : consumers)
    for (const int consumer : list) ++missing[at(consumer)];
  const std::vector<char> eager = find_eager(plan, consumers);
  // Nodes that passes appended go where their sources are, before what was created later.
  const auto key = [&](int n) { return std::pair(!eager[at(n)], n); };
  std::priority_queue<std::pair<bool, int>, std::vector<std::pair<bool, int>>, std::greater<>>
      ready;
  for (std::size_t n = 0; n < plan.nodes.size(); ++n)
    if (missing[n] == 0) ready.push(key(static_cast<int>(n)));
  std::vector<int> sorted;
  while (!ready.empty()) {
    const int n = ready.top().second;
    ready.pop();
    sorted.push_back(n);
    for (const int consumer : consumers[at(n)])
      if (--missing[at(consumer)] == 0) ready.push(key(consumer));
  }
  return sorted;
}

// Without nodes that were used, are so no longer, and write nothing.
std::vector<int> without_unused(const PlanGraph& plan, const std::vector<char>& was_used) {
  std::vector<std::size_t> uses(plan.nodes.size());
  const auto each_before = [&](std::size_t n, const auto& f) {
    for (const Value& input : plan.nodes[n].inputs) f(at(input.node));
    for (const int before : plan.nodes[n].after) f(at(before));
  };
  for (std::size_t n = 0; n < plan.nodes.size(); ++n)
    each_before(n, [&](std::size_t b) { ++uses[b]; });
  std::vector<char> gone(plan.nodes.size());
  std::vector<std::size_t> open;
  const auto drop = [&](std::size_t n) {
    const PlanNode& node = plan.nodes[n];
    if (uses[n] > 0 || !was_used[n] || node.writes() > 0 || node.op->storage) return;
    gone[n] = true;
    open.push_back(n);
  };
  for (std::size_t n = 0; n < plan.nodes.size(); ++n) drop(n);
  while (!open.empty()) {
    const std::size_t n = open.back();
    open.pop_back();
    each_before(n, [&](std::size_t b) {
      if (--uses[b] == 0) drop(b);
    });
  }
  std::vector<int> kept;
  for (std::size_t n = 0; n < plan.nodes.size(); ++n)
    if (!gone[n]) kept.push_back(static_cast<int>(n));
  return kept;
}

}  // namespace

void keep_nodes(PlanGraph& plan, const std::vector<int>& kept) {
  std::vector<int> moved(plan.nodes.size(), -1);
  std::vector<PlanNode> nodes;
  for (const int n : kept) {
    moved[at(n)] = static_cast<int>(nodes.size());
    nodes.push_back(std::move(plan.nodes[at(n)]));
  }
  for (PlanNode& node : nodes) {
    for (Value& input : node.inputs) input.node = moved[at(input.node)];
    for (int& before : node.after) before = moved[at(before)];
  }
  plan.nodes = std::move(nodes);
}

void sort_nodes(PlanGraph& plan) {
  const std::vector<int> sorted = sorted_nodes(plan);
  require<Internal>(sorted.size() == plan.nodes.size(), "the plan has a cycle");
  keep_nodes(plan, sorted);
}

namespace {

int stand_in(const Replacements& replacements, int n) {
  const auto found = replacements.nodes.find(n);
  return found == replacements.nodes.end() ? n : found->second;
}

Value stand_in(const Replacements& replacements, const Value& value) {
  const auto found = replacements.values.find(value);
  return found == replacements.values.end() ? value : found->second;
}

// Whether nodes would wait for themselves, were they replaced.
bool would_close_cycle(const PlanGraph& plan, const Replacements& replacements) {
  std::vector<std::vector<int>> consumers(plan.nodes.size());
  std::vector<int> missing(plan.nodes.size());
  const auto add = [&](int before, int n) {
    if (before == n) return;
    consumers[at(before)].push_back(n);
    ++missing[at(n)];
  };
  for (std::size_t i = 0; i < plan.nodes.size(); ++i) {
    const PlanNode& node = plan.nodes[i];
    const int own = static_cast<int>(i), by = stand_in(replacements, own);
    for (const int before : node.after) add(stand_in(replacements, before), by);
    if (by != own) continue;
    for (const Value& input : node.inputs) {
      const int giver = stand_in(replacements, input).node;
      if (giver == own) return true;
      add(giver, own);
    }
  }
  std::vector<int> ready;
  for (std::size_t n = 0; n < plan.nodes.size(); ++n)
    if (missing[n] == 0) ready.push_back(static_cast<int>(n));
  for (std::size_t i = 0; i < ready.size(); ++i)
    for (const int consumer : consumers[at(ready[i])])
      if (--missing[at(consumer)] == 0) ready.push_back(consumer);
  return ready.size() < plan.nodes.size();
}

}  // namespace

bool replace_nodes(PlanGraph& plan, const Replacements& replacements) {
  if (would_close_cycle(plan, replacements)) return false;
  std::vector<char> was_used(plan.nodes.size());
  for (const PlanNode& node : plan.nodes) {
    for (const Value& input : node.inputs) was_used[at(input.node)] = true;
    for (const int before : node.after) was_used[at(before)] = true;
  }
  for (const auto& [replaced, by] : replacements.nodes) {
    const std::vector<int> after = std::exchange(plan.nodes[at(replaced)].after, {});
    std::vector<int>& to = plan.nodes[at(by)].after;
    to.insert(to.end(), after.begin(), after.end());
  }
  for (std::size_t n = 0; n < plan.nodes.size(); ++n) {
    PlanNode& node = plan.nodes[n];
    for (Value& input : node.inputs) input = stand_in(replacements, input);
    for (int& before : node.after) before = stand_in(replacements, before);
    std::erase(node.after, static_cast<int>(n));
  }
  std::vector<int> kept;
  for (std::size_t n = 0; n < plan.nodes.size(); ++n)
    if (!replacements.nodes.contains(static_cast<int>(n))) kept.push_back(static_cast<int>(n));
  std::vector<char> used;
  for (const int n : kept) used.push_back(was_used[at(n)]);
  keep_nodes(plan, kept);
  keep_nodes(plan, without_unused(plan, used));
  sort_nodes(plan);
  return true;
}

}  // namespace belfry
