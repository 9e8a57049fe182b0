#include <algorithm>
#include <map>

#include "belfry/framework/base/require.h"
#include "belfry/framework/core_ops/copy.h"
#include "belfry/framework/graph/state.h"
#include "belfry/framework/passes/nodes.h"
#include "belfry/framework/passes/passes.h"
#include "belfry/framework/plan/fused_update.h"

namespace belfry {
namespace {

// A value of a variable, and the first write that may overwrite it.
struct Version {
  NodeIndex variable;
  NodeIndex last;  // the write that made it, or none
  Value reader;    // a read, or the result of that write
  NodeIndex next;
};

class WriteOrder {
 public:
  explicit WriteOrder(PlanGraph& plan)
      : plan_(plan),
        consumers_(consumers_of(plan)),
        added_(plan.nodes.size()),
        walker_(plan.nodes.size()) {}

  void run() {
    // All versions follow from paths of the graph, so they are found before any edge is added.
    for (const auto& [variable, writes] : collect_writes()) find_versions(variable, writes);
    for (const Version& version : versions_) protect(version);
    sort_nodes(plan_);
  }

 private:
  // The writes to each variable, in order of creation.
  std::map<NodeIndex, std::vector<NodeIndex>> collect_writes() const {
    std::map<NodeIndex, std::vector<NodeIndex>> writes;
    for (const NodeIndex n : plan_.nodes.indices())
      for (int i = 0; i < plan_.nodes[n].writes(); ++i)
        writes[plan_.nodes[n].inputs[at(i)].node].push_back(n);
    return writes;
  }

  // The node that the user wrote. In a FusedUpdate this is the update of this variable.
  const Node& writer(NodeIndex write, NodeIndex variable) const {
    const PlanNode& planned = node(write);
    if (!planned.fused_update()) return *planned.node;
    const auto slot = std::ranges::find(planned.inputs, variable, &Value::node);
    return *readers_of(*planned.fused_update())[at(slot - planned.inputs.begin())].member->node;
  }

  void find_versions(NodeIndex variable, const std::vector<NodeIndex>& writes) {
    std::vector<std::vector<NodeIndex>> after;
    for (const NodeIndex write : writes) after.push_back(after_of(write));
    for (std::size_t w = 0; w + 1 < writes.size(); ++w)
      require(contains(after[w], writes[w + 1]), "the writes to variable '",
              node(variable).node->name(), "' by ", writer(writes[w], variable).describe(), " and ",
              writer(writes[w + 1], variable).describe(),
              " are not ordered; make one depend on the other");
    for (const NodeIndex reader : consumers_[variable]) {
      if (node(reader).op != &kRead) continue;
      std::size_t next = 0;
      while (next < writes.size() && contains(after[next], reader)) ++next;
      if (next < writes.size())
        versions_.push_back(
            {variable, next == 0 ? NodeIndex() : writes[next - 1], {reader, 0}, writes[next]});
    }
    for (std::size_t w = 0; w + 1 < writes.size(); ++w) {
      const auto& inputs = node(writes[w]).inputs;
      const auto slot = std::ranges::find(inputs, Value{variable, 0}) - inputs.begin();
      versions_.push_back(
          {variable, writes[w], {writes[w], static_cast<int>(slot)}, writes[w + 1]});
    }
  }

  std::vector<NodeIndex> after_of(NodeIndex write) {
    const std::vector<NodeIndex>& added = added_[write];
    if (added.empty()) return walker_.reached_from(consumers_, consumers_[write], added_);
    std::vector<NodeIndex> starts(added);
    starts.insert(starts.end(), consumers_[write].begin(), consumers_[write].end());
    return walker_.reached_from(consumers_, starts, added_);
  }

  static bool contains(const std::vector<NodeIndex>& sorted, NodeIndex n) {
    return std::ranges::binary_search(sorted, n);
  }

  // Makes the next write wait for all users of a version, or copies the version if one of them runs
  // later.
  void protect(const Version& version) {
    const std::vector<NodeIndex> late = after_of(version.next);
    const std::vector<NodeIndex> users = users_of(plan_, consumers_, version.reader);
    if (std::ranges::any_of(users, [&](NodeIndex user) { return contains(late, user); }))
      return copy(version);
    for (const NodeIndex user : users)
      if (user != version.next) add_edge(user, version.next);
  }

  // Gives all users a copy, made as soon as the version exists, even if the read itself waits for
  // more.
  void copy(const Version& version) {
    const PlanNode& reader = node(version.reader.node);
    PlanNode made{&kCopy, reader.node, {{version.variable, 0}}, {}, {}, {}};
    made.types = {node(version.variable).types[0]};
    made.devices = {node(version.variable).device()};
    if (version.last) made.after = {version.last};
    const NodeIndex copy = plan_.nodes.add(std::move(made));
    for (const NodeIndex user : consumers_[version.reader.node]) {
      PlanNode& planned = plan_.nodes[user];
      if (std::ranges::find(planned.inputs, version.reader) == planned.inputs.end()) continue;
      std::ranges::replace(planned.inputs, version.reader, Value{copy, 0});
      planned.after.push_back(version.reader.node);
    }
    plan_.nodes[version.next].after.push_back(copy);
    consumers_ = consumers_of(plan_);
    added_.assign(plan_.nodes.size(), {});
  }

  void add_edge(NodeIndex first, NodeIndex second) {
    plan_.nodes[second].after.push_back(first);
    added_[first].push_back(second);
  }

  const PlanNode& node(NodeIndex n) const { return plan_.nodes[n]; }

  PlanGraph& plan_;
  Consumers consumers_;
  NodeLists added_;  // consumers added since then
  std::vector<Version> versions_;
  Walker walker_;
};

}  // namespace

void order_writes(PlanGraph& plan) {
  if (plan.writes) WriteOrder(plan).run();
}

}  // namespace belfry
