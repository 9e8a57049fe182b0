#include <algorithm>
#include <map>

#include "belfry/framework/core_ops/copy.h"
#include "belfry/framework/graph/state.h"
#include "belfry/framework/passes/passes.h"
#include "belfry/framework/plan/fusion.h"

namespace belfry {
namespace {

// A value of a variable, and the first write that may overwrite it.
struct Version {
  int variable;
  int last;      // the write that made it, or -1
  Value reader;  // a read, or the result of that write
  int next;
};

class WriteOrder {
 public:
  explicit WriteOrder(PlanGraph& plan)
      : plan_(plan), consumers_(consumers_of(plan)), walker_(plan.nodes.size()) {}

  void run() {
    // Versions are those of the graph's paths: all are found before any edge is added.
    for (const auto& [variable, writes] : collect_writes()) find_versions(variable, writes);
    for (const Version& version : versions_) protect(version);
    sort_nodes(plan_);
  }

 private:
  // The writes to each variable (by plan node), in order of creation.
  std::map<int, std::vector<int>> collect_writes() const {
    std::map<int, std::vector<int>> writes;
    for (std::size_t n = 0; n < plan_.nodes.size(); ++n)
      for (int i = 0; i < plan_.nodes[n].writes(); ++i)
        writes[plan_.nodes[n].inputs[at(i)].node].push_back(static_cast<int>(n));
    return writes;
  }

  // What the user wrote: of a fusion, the update of this variable.
  const Node& writer(int write, int variable) const {
    const PlanNode& planned = node(write);
    if (!planned.fusion()) return *planned.node;
    const auto slot = std::ranges::find(planned.inputs, variable, &Value::node);
    return *readers_of(*planned.fusion())[at(slot - planned.inputs.begin())].member->node;
  }

  void find_versions(int variable, const std::vector<int>& writes) {
    std::vector<std::vector<int>> after;
    for (const int write : writes) after.push_back(after_of(write));
    for (std::size_t w = 0; w + 1 < writes.size(); ++w)
      require(contains(after[w], writes[w + 1]), "the writes to variable '",
              node(variable).node->name(), "' by ", writer(writes[w], variable).describe(), " and ",
              writer(writes[w + 1], variable).describe(),
              " are not ordered; make one depend on the other");
    for (const int reader : consumers_[at(variable)]) {
      if (node(reader).op != &kRead) continue;
      std::size_t next = 0;
      while (next < writes.size() && contains(after[next], reader)) ++next;
      if (next < writes.size())
        versions_.push_back(
            {variable, next == 0 ? -1 : writes[next - 1], {reader, 0}, writes[next]});
    }
    for (std::size_t w = 0; w + 1 < writes.size(); ++w) {
      const auto& inputs = node(writes[w]).inputs;
      const auto slot = std::ranges::find(inputs, Value{variable, 0}) - inputs.begin();
      versions_.push_back(
          {variable, writes[w], {writes[w], static_cast<int>(slot)}, writes[w + 1]});
    }
  }

  std::vector<int> after_of(int write) {
    return walker_.reached_from(consumers_, consumers_[at(write)]);
  }

  static bool contains(const std::vector<int>& sorted, int n) {
    return std::ranges::binary_search(sorted, n);
  }

  // Makes the next write wait for all users of a version, or copies it if one of them runs later.
  void protect(const Version& version) {
    const std::vector<int> late = after_of(version.next);
    const std::vector<int> users = users_of(plan_, consumers_, version.reader);
    if (std::ranges::any_of(users, [&](int user) { return contains(late, user); }))
      return copy(version);
    for (const int user : users)
      if (user != version.next) add_edge(user, version.next);
  }

  // All users get a copy, made as soon as the version exists, whatever the read itself waits for.
  void copy(const Version& version) {
    const int copy = static_cast<int>(plan_.nodes.size());
    const PlanNode& reader = node(version.reader.node);
    PlanNode made{&kCopy, reader.node, {{version.variable, 0}}, {}, {}, {}};
    made.types = {node(version.variable).types[0]};
    made.devices = {node(version.variable).device()};
    if (version.last >= 0) made.after = {version.last};
    for (const int user : consumers_[at(version.reader.node)]) {
      PlanNode& planned = plan_.nodes[at(user)];
      if (std::ranges::find(planned.inputs, version.reader) == planned.inputs.end()) continue;
      std::ranges::replace(planned.inputs, version.reader, Value{copy, 0});
      planned.after.push_back(version.reader.node);
    }
    plan_.nodes.push_back(std::move(made));
    plan_.nodes[at(version.next)].after.push_back(copy);
    consumers_ = consumers_of(plan_);
  }

  void add_edge(int first, int second) {
    plan_.nodes[at(second)].after.push_back(first);
    consumers_[at(first)].push_back(second);
  }

  const PlanNode& node(int n) const { return plan_.nodes[at(n)]; }

  PlanGraph& plan_;
  std::vector<std::vector<int>> consumers_;
  std::vector<Version> versions_;
  Walker walker_;
};

}  // namespace

void order_writes(PlanGraph& plan) {
  if (plan.writes) WriteOrder(plan).run();
}

}  // namespace belfry
