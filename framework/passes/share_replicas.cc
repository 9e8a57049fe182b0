// Keeps one storage for copies of a variable that are always equal. Each tower has its own copy,
// but towers in one memory space start from the same value and apply the same sum. One storage
// saves the memory of the other copies, and their updates. Whether copies stay equal depends on
// their writes, which read other copies. So the pass assumes that all are equal, and drops each
// assumption that does not follow.
#include <algorithm>
#include <map>
#include <set>

#include "belfry/framework/base/sort_unique.h"
#include "belfry/framework/base/text.h"
#include "belfry/framework/core_ops/constant.h"
#include "belfry/framework/graph/state.h"
#include "belfry/framework/graph/variable.h"
#include "belfry/framework/passes/nodes.h"
#include "belfry/framework/passes/passes.h"

namespace belfry {
namespace {

// Larger constants are not compared: they count as different.
constexpr std::size_t kMostConstantBytes = 1024;

// Variables of the plan that share a storage, or will share one: the owner first.
struct Group {
  std::vector<NodeIndex> variables;
  bool exists = false;  // the storage has memory already
};

// Assumes that all replicas are equal, and computes the consequences. Groups whose writes turn out
// to differ are dropped, until the remaining assumptions follow from themselves.
class Sharing {
 public:
  Sharing(PlanGraph& plan, const PlanContext& context) : plan_(plan), context_(context) {}

  void run() {
    collect_groups();
    if (groups_.empty()) return;
    consumers_ = consumers_of(plan_);
    number_groups();
    collect_writes();
    while (drop_unequal()) {
    }
    if (plan_.unshare.empty() && !merge()) {
      drop_written();
      if (plan_.unshare.empty()) merge();
    }
  }

 private:
  void collect_groups() {
    std::map<std::pair<const Node*, int>, Group> fresh;
    std::set<const Node*> found;  // variables among the sharers of another
    for (const NodeIndex n : plan_.nodes.indices()) {
      const PlanNode& planned = plan_.nodes[n];
      if (!planned.is_variable()) continue;
      index_[planned.node] = n;
      if (found.contains(planned.node)) continue;
      const std::vector<const Node*> sharers =
          context_.sharers ? context_.sharers(*planned.node) : std::vector<const Node*>();
      const int space = context_.device(planned.device()).memory_space;
      if (sharers.empty() && context_.options.share_replicas)
        fresh[{&original_of(*planned.node), space}].variables.push_back(n);
      else if (sharers.size() > 1)
        existing_[sharers.front()] = sharers;
      found.insert(sharers.begin(), sharers.end());
    }
    for (auto& [key, group] : fresh)
      if (group.variables.size() > 1) groups_.push_back(std::move(group));
    for (const auto& [owner, sharers] : existing_) add_existing(sharers);
  }

  void number_groups() {
    for (std::size_t g = 0; g < groups_.size(); ++g)
      for (const NodeIndex variable : groups_[g].variables)
        if (variable) group_of_[variable] = static_cast<int>(g);
  }

  // Adds a group that already shares a storage. A sharer outside the plan has no writes in it, so
  // its place stays empty.
  void add_existing(const std::vector<const Node*>& sharers) {
    Group group{{}, true};
    for (const Node* sharer : sharers)
      group.variables.push_back(index_.contains(sharer) ? index_.at(sharer) : NodeIndex());
    groups_.push_back(std::move(group));
  }

  void collect_writes() {
    for (const NodeIndex n : plan_.nodes.indices()) {
      const PlanNode& planned = plan_.nodes[n];
      for (int i = 0; i < planned.op->writes; ++i)
        if (group_of_.contains(planned.inputs[at(i)].node))
          writes_[planned.inputs[at(i)].node].push_back(n);
    }
    for (const auto& [variable, writes] : writes_)
      for (const NodeIndex write : writes)
        reached_[write] = walker_.reached_from(consumers_, consumers_[write]);
  }

  const std::vector<NodeIndex>& writes(NodeIndex variable) const {
    static const std::vector<NodeIndex> kNone;
    const auto found = writes_.find(variable);
    return found == writes_.end() ? kNone : found->second;
  }

  // Drops groups with unequal writes. Returns true if it dropped one, because others may depend on
  // it.
  bool drop_unequal() {
    number_values();
    bool dropped = false;
    for (Group& group : groups_) {
      if (group.variables.empty() || equal_writes(group)) continue;
      drop(group);
      dropped = true;
    }
    return dropped;
  }

  void drop(Group& group) {
    if (group.exists)
      for (const NodeIndex variable : group.variables)
        if (variable) {
          plan_.unshare.push_back(plan_.node(variable).node);
          break;
        }
    for (const NodeIndex variable : group.variables) group_of_.erase(variable);
    group.variables.clear();
  }

  bool equal_writes(const Group& group) const {
    const bool written = std::ranges::any_of(
        group.variables, [&](NodeIndex variable) { return !writes(variable).empty(); });
    if (!written) return true;
    for (const NodeIndex variable : group.variables) {
      if (!variable) return false;
      const auto& first = writes(group.variables[0]);
      const auto& own = writes(variable);
      if (own.size() != first.size()) return false;
      for (std::size_t w = 0; w < own.size(); ++w)
        if ((own[w] == first[w]) != (variable == group.variables[0]) ||
            number({own[w], 0}) != number({first[w], 0}) ||
            plan_.node(own[w]).types.size() != plan_.node(first[w]).types.size())
          return false;
    }
    return same_versions(group);
  }

  // Whether each read sees the same version after one write has replaced the writes of all.
  bool same_versions(const Group& group) const {
    for (std::size_t w = 0; w < writes(group.variables[0]).size(); ++w) {
      std::vector<NodeIndex> any;  // nodes after the write of some copy
      for (const NodeIndex variable : group.variables)
        any.insert(any.end(), reached_.at(writes(variable)[w]).begin(),
                   reached_.at(writes(variable)[w]).end());
      sort_unique(any);
      for (const NodeIndex variable : group.variables)
        for (const NodeIndex user : consumers_[variable])
          if (std::ranges::binary_search(any, user) && !reaches(writes(variable)[w], user))
            return false;
    }
    return true;
  }

  bool reaches(NodeIndex write, NodeIndex n) const {
    return std::ranges::binary_search(reached_.at(write), n);
  }

  // The number of a node's first output, and how many consecutive outputs have the same number.
  struct Numbers {
    int first = 0;
    int equal = 1;
  };

  // Values that are equal in every run have the same number.
  int number(Value value) const {
    const Numbers& of = numbers_[value.node];
    return of.first + value.index / of.equal;
  }

  void number_values() {
    numbers_.clear();
    std::map<std::vector<int>, int> known;  // by key
    int next = 0;
    for (const NodeIndex n : plan_.nodes.indices()) {
      const PlanNode& node = plan_.nodes[n];
      if (is_identity(node)) {
        numbers_.push_back({number(node.inputs[0]), 1});
        continue;
      }
      // Each tensor of a collective has one result for all participants.
      const int equal = std::max(node.participants(), 1);
      const int first = known.emplace(describe(n), next).first->second;
      if (first == next) next += std::max(static_cast<int>(node.types.size()), 1);
      numbers_.push_back({first, equal});
    }
  }

  bool is_identity(const PlanNode& node) const {
    return node.op->alias && node.op != &kRead && node.types[0] == plan_.type(node.inputs[0]);
  }

  // The computation of a node, in terms of the numbers of its inputs.
  std::vector<int> describe(NodeIndex n) {
    const PlanNode& node = plan_.node(n);
    if (const auto group = group_of_.find(n); group != group_of_.end())
      return {text_number("shared"), group->second};
    if (node.op == &kConst) {
      const Tensor& value = node.node->options<ConstantOptions>().value;
      if (value.bytes() <= kMostConstantBytes)
        return {text_number(
            cat("constant ", node.types[0].str(), ":",
                std::string(reinterpret_cast<const char*>(value.raw()), value.bytes())))};
    }
    if (node.op->storage || node.op->random || (node.inputs.empty() && !node.types.empty()))
      return {text_number("node"), n.value()};
    std::vector<int> key{text_number(cat(node.op->name, node.node->raw_options().str(),
                                         node.fetch(), node.node->origin().tf32 ? " tf32" : ""))};
    for (const Value& input : node.inputs) key.push_back(number(input));
    if (node.op == &kRead || node.op->writes > 0)
      key.push_back(static_cast<int>(std::ranges::count_if(
          writes(node.inputs[0].node), [&](NodeIndex write) { return reaches(write, n); })));
    return key;
  }

  int text_number(const std::string& text) {
    return texts_.emplace(text, static_cast<int>(texts_.size())).first->second;
  }

  // Replaces the writes of all copies by those of the owner. Returns false if this would close a
  // cycle.
  bool merge() {
    Replacements replacements;
    std::map<const Node*, const Node*> shares;
    for (const Group& group : groups_) {
      if (group.variables.empty() || !group.variables[0]) continue;
      const NodeIndex owner = group.variables[0];
      for (const NodeIndex variable : std::span(group.variables).subspan(1)) {
        if (!variable) continue;
        replacements.values[{variable, 0}] = {owner, 0};
        if (!group.exists) shares[plan_.node(variable).node] = plan_.node(owner).node;
        for (std::size_t w = 0; w < writes(variable).size(); ++w) {
          const NodeIndex write = writes(variable)[w], by = writes(owner)[w];
          if (replacements.nodes.emplace(write, by).first->second != by) return false;
          for (int i = 0; i < std::ssize(plan_.node(write).types); ++i)
            replacements.values[{write, i}] = {by, i};
        }
      }
    }
    std::vector<NodeIndex> shared;  // reads that now read a shared storage
    for (const NodeIndex n : plan_.nodes.indices()) {
      PlanNode& node = plan_.nodes[n];
      if (node.op != &kRead || node.reads_shared_storage ||
          !replacements.values.contains(node.inputs[0]))
        continue;
      node.reads_shared_storage = true;
      shared.push_back(n);
    }
    if (!replace_nodes(plan_, replacements)) {
      for (const NodeIndex n : shared) plan_.nodes[n].reads_shared_storage = false;
      return false;
    }
    plan_.shares = std::move(shares);
    return true;
  }

  void drop_written() {
    for (Group& group : groups_)
      if (std::ranges::any_of(group.variables,
                              [&](NodeIndex variable) { return !writes(variable).empty(); }))
        drop(group);
  }

  PlanGraph& plan_;
  const PlanContext& context_;
  Consumers consumers_;
  std::map<const Node*, NodeIndex> index_;
  std::map<const Node*, std::vector<const Node*>> existing_;
  std::vector<Group> groups_;
  std::map<NodeIndex, int> group_of_;                   // by variable
  std::map<NodeIndex, std::vector<NodeIndex>> writes_;  // by variable
  Walker walker_{0};
  std::map<NodeIndex, std::vector<NodeIndex>> reached_;  // by write: the nodes that a path leads to
  std::map<std::string, int> texts_;
  Indexed<PlanNode, Numbers> numbers_;
};

}  // namespace

void share_replicas(PlanGraph& plan, const PlanContext& context) { Sharing(plan, context).run(); }

}  // namespace belfry
