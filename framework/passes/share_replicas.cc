// Keeps one storage for copies of a variable that are always equal. Each tower has a copy of its
// own, but towers in one memory space start from the same value and apply the same sum. One storage
// saves the memory of the others and their updates. Whether copies stay equal depends on their
// writes, which read other copies; so the pass assumes that all are equal, and takes back what does
// not follow.
#include <algorithm>
#include <map>

#include "belfry/framework/core_ops/constant.h"
#include "belfry/framework/graph/state.h"
#include "belfry/framework/graph/variable.h"
#include "belfry/framework/passes/passes.h"

namespace belfry {
namespace {

// Larger constants are not compared: they count as different.
constexpr std::size_t kMostConstantBytes = 1024;

// Variables of the plan that share a storage, or shall: the owner first.
struct Group {
  std::vector<int> variables;
  bool exists = false;  // has memory already
};

// Optimistic: all replicas are taken to be equal, what follows from that is computed, and groups
// whose writes turn out to differ are dropped, until all that is left follows from itself.
class Sharing {
 public:
  Sharing(PlanGraph& plan, const PlanContext& context)
      : plan_(plan), context_(context), consumers_(consumers_of(plan)) {}

  void run() {
    collect_groups();
    if (groups_.empty()) return;
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
    for (std::size_t n = 0; n < plan_.nodes.size(); ++n) {
      const PlanNode& planned = plan_.nodes[n];
      if (!planned.is_variable()) continue;
      index_[planned.node] = static_cast<int>(n);
      const std::vector<const Node*> sharers =
          context_.sharers ? context_.sharers(*planned.node) : std::vector<const Node*>();
      const int space = context_.device(planned.device()).memory_space;
      if (sharers.empty() && context_.share_replicas)
        fresh[{&original_of(*planned.node), space}].variables.push_back(static_cast<int>(n));
      else if (sharers.size() > 1)
        existing_[sharers.front()] = sharers;
    }
    for (auto& [key, group] : fresh)
      if (group.variables.size() > 1) groups_.push_back(std::move(group));
    for (const auto& [owner, sharers] : existing_) add_existing(sharers);
  }

  void number_groups() {
    for (std::size_t g = 0; g < groups_.size(); ++g)
      for (const int variable : groups_[g].variables)
        if (variable >= 0) group_of_[variable] = static_cast<int>(g);
  }

  // Those that the plan leaves out stand for writes that it does not have.
  void add_existing(const std::vector<const Node*>& sharers) {
    Group group{{}, true};
    for (const Node* sharer : sharers)
      group.variables.push_back(index_.contains(sharer) ? index_.at(sharer) : -1);
    groups_.push_back(std::move(group));
  }

  void collect_writes() {
    for (std::size_t n = 0; n < plan_.nodes.size(); ++n) {
      const PlanNode& planned = plan_.nodes[n];
      for (int i = 0; i < planned.op->writes; ++i)
        if (group_of_.contains(planned.inputs[at(i)].node))
          writes_[planned.inputs[at(i)].node].push_back(static_cast<int>(n));
    }
    for (const auto& [variable, writes] : writes_)
      for (const int write : writes)
        reached_[write] = reached_from(consumers_, consumers_[at(write)]);
  }

  const std::vector<int>& writes(int variable) const {
    static const std::vector<int> kNone;
    const auto found = writes_.find(variable);
    return found == writes_.end() ? kNone : found->second;
  }

  // True if a group was dropped, so that others may have to follow.
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
      for (const int variable : group.variables)
        if (variable >= 0) {
          plan_.unshare.push_back(plan_.node(variable).node);
          break;
        }
    for (const int variable : group.variables) group_of_.erase(variable);
    group.variables.clear();
  }

  bool equal_writes(const Group& group) const {
    const bool written = std::ranges::any_of(
        group.variables, [&](int variable) { return !writes(variable).empty(); });
    if (!written) return true;
    for (const int variable : group.variables) {
      if (variable < 0) return false;
      const auto& first = writes(group.variables[0]);
      const auto& own = writes(variable);
      if (own.size() != first.size()) return false;
      for (std::size_t w = 0; w < own.size(); ++w)
        if ((own[w] == first[w]) != (variable == group.variables[0]) ||
            numbers_.at({own[w], 0}) != numbers_.at({first[w], 0}) ||
            plan_.node(own[w]).types.size() != plan_.node(first[w]).types.size())
          return false;
    }
    return same_versions(group);
  }

  // After the writes of all have become one, each read sees the version that it sees now.
  bool same_versions(const Group& group) const {
    for (const int variable : group.variables)
      for (const int user : consumers_[at(variable)])
        for (std::size_t w = 0; w < writes(variable).size(); ++w)
          for (const int other : group.variables) {
            const int write = writes(other)[w];
            if (user != write && reached_.at(write)[at(user)] &&
                !reached_.at(writes(variable)[w])[at(user)])
              return false;
          }
    return true;
  }

  // numbers_: equal for values that are equal in every run.
  void number_values() {
    numbers_.clear();
    std::map<std::string, int> known;
    const auto number = [&](const std::string& key) {
      return known.emplace(key, static_cast<int>(known.size())).first->second;
    };
    for (std::size_t n = 0; n < plan_.nodes.size(); ++n) {
      if (is_identity(plan_.nodes[n])) {
        numbers_[{static_cast<int>(n), 0}] = numbers_.at(plan_.nodes[n].inputs[0]);
        continue;
      }
      const std::string key = describe(static_cast<int>(n));
      // The results of a collective are equal for each of its tensors.
      const int equal = std::max(plan_.nodes[n].participants(), 1);
      const int outputs = std::max(static_cast<int>(plan_.nodes[n].types.size()), 1);
      for (int i = 0; i < outputs; ++i)
        numbers_[{static_cast<int>(n), i}] = number(cat(key, "/", i / equal));
    }
  }

  bool is_identity(const PlanNode& node) const {
    return node.op->alias && node.op != &kRead && node.types[0] == plan_.type(node.inputs[0]);
  }

  // What a node computes, in terms of the numbers of its inputs.
  std::string describe(int n) const {
    const PlanNode& node = plan_.node(n);
    if (const auto group = group_of_.find(n); group != group_of_.end())
      return cat("shared ", group->second);
    if (node.op == &kConst) {
      const Tensor& value = node.node->options<ConstantOptions>().value;
      if (value.bytes() <= kMostConstantBytes)
        return cat("constant ", node.types[0].str(), ":",
                   std::string(reinterpret_cast<const char*>(value.raw()), value.bytes()));
    }
    if (node.op->storage || node.op->random || (node.inputs.empty() && !node.types.empty()))
      return cat("node ", n);
    std::string key = cat(node.op->name, node.node->raw_options().str(), node.fetch(),
                          node.node->origin().tf32 ? " tf32" : "");
    for (const Value& input : node.inputs) key += cat(" ", numbers_.at(input));
    if (node.op == &kRead || node.op->writes > 0) {
      const int variable = node.inputs[0].node;
      const auto& all = writes(variable);
      key += cat(" version ",
                 std::ranges::count_if(all, [&](int write) { return reached_.at(write)[at(n)]; }));
    }
    return key;
  }

  // Writes of the owner stand for those of all. False if they would wait for each other.
  bool merge() {
    Replacements replacements;
    std::map<const Node*, const Node*> shares;
    for (const Group& group : groups_) {
      if (group.variables.empty() || group.variables[0] < 0) continue;
      const int owner = group.variables[0];
      for (const int variable : std::span(group.variables).subspan(1)) {
        if (variable < 0) continue;
        replacements.values[{variable, 0}] = {owner, 0};
        if (!group.exists) shares[plan_.node(variable).node] = plan_.node(owner).node;
        for (std::size_t w = 0; w < writes(variable).size(); ++w) {
          const int write = writes(variable)[w], by = writes(owner)[w];
          if (replacements.nodes.emplace(write, by).first->second != by) return false;
          for (int i = 0; i < std::ssize(plan_.node(write).types); ++i)
            replacements.values[{write, i}] = {by, i};
        }
      }
    }
    std::vector<PlanNode> before = plan_.nodes;
    for (PlanNode& node : plan_.nodes)
      if (node.op == &kRead && replacements.values.contains(node.inputs[0])) node.shared = true;
    if (!replace_nodes(plan_, replacements)) {
      plan_.nodes = std::move(before);
      return false;
    }
    plan_.shares = std::move(shares);
    return true;
  }

  void drop_written() {
    for (Group& group : groups_)
      if (std::ranges::any_of(group.variables,
                              [&](int variable) { return !writes(variable).empty(); }))
        drop(group);
  }

  PlanGraph& plan_;
  const PlanContext& context_;
  std::vector<std::vector<int>> consumers_;
  std::map<const Node*, int> index_;
  std::map<const Node*, std::vector<const Node*>> existing_;
  std::vector<Group> groups_;
  std::map<int, int> group_of_;             // plan node of a variable -> group
  std::map<int, std::vector<int>> writes_;  // plan node of a variable -> those of its writes
  // [write][n]: there is a path from the one to the other.
  std::map<int, std::vector<char>> reached_;
  std::map<Value, int> numbers_;
};

}  // namespace

void share_replicas(PlanGraph& plan, const PlanContext& context) { Sharing(plan, context).run(); }

}  // namespace belfry
