// In some plans each process updates a part of a variable and sends the new values to the others.
// At the end of a step little work is left to hide these messages, and the next forward pass sends
// none. So the gathers of a step come at the beginning of its next run: the forward pass computes
// with the first weights while the last ones arrive.
#include <algorithm>
#include <set>
#include <utility>

#include "belfry/framework/core_ops/assign_gathered.h"
#include "belfry/framework/core_ops/no_op.h"
#include "belfry/framework/graph/state.h"
#include "belfry/framework/passes/nodes.h"
#include "belfry/framework/passes/passes.h"

namespace belfry {
namespace {

class Gathers {
 public:
  explicit Gathers(PlanGraph& plan) : plan_(plan), consumers_(consumers_of(plan)) {
    for (const NodeIndex n : plan.nodes.indices())
      if (plan.nodes[n].op == &kAssignGathered) assigns_.push_back({first_user(n), n});
    std::ranges::sort(assigns_);
  }

  void move() {
    if (assigns_.empty() || are_needed()) return;
    for (const auto& [user, n] : assigns_) {
      const NodeIndex row = plan_.nodes[n].inputs[1].node;
      if (rows_.empty() || rows_.back().node != row) rows_.push_back({row, front_.size(), {}});
      if (!add_source(row)) return;
      rows_.back().last_assign = n;
    }
    for (const NodeIndex n : front_) plan_.nodes[n].after.clear();
    for (const auto& [user, n] : assigns_) put_before_users(n);
    limit_memory();
    order();
  }

 private:
  NodeIndex variable_of(NodeIndex assign) const { return plan_.nodes[assign].inputs[0].node; }

  // Whether this run reads the gathered values.
  bool are_needed() const {
    std::vector<NodeIndex> starts;
    for (const auto& [user, n] : assigns_) starts.push_back(n);
    const auto reached = reached_from(consumers_, starts);
    return std::ranges::any_of(plan_.nodes.indices(), [&](NodeIndex n) {
      const Op* const op = plan_.nodes[n].op;
      return reached[n] && op != &kAssignGathered && op != &kNoOp;
    });
  }

  // The first node that reads the variable before its update.
  NodeIndex first_user(NodeIndex assign) const {
    NodeIndex first = assign;
    for (const NodeIndex user : users_of(plan_, consumers_, {variable_of(assign), 0}))
      first = std::min(first, user);
    return first;
  }

  // Records that n must come before the gathers. The sources of a gather depend only on variables,
  // so they can come before everything else. Returns false if they do not.
  bool add_source(NodeIndex n) {
    const PlanNode& node = plan_.nodes[n];
    if (node.is_variable() || sources_.contains(n)) return true;
    if (node.op->storage || node.op->random || node.writes() > 0) return false;
    for (const Value& input : node.inputs)
      if (!add_source(input.node)) return false;
    sources_.insert(n);
    front_.push_back(n);
    return true;
  }

  void put_before_users(NodeIndex assign) {
    const NodeIndex variable = variable_of(assign);
    plan_.nodes[assign].after.clear();
    for (const NodeIndex user : consumers_[variable])
      if (user != assign && !sources_.contains(user)) plan_.nodes[user].after.push_back(assign);
    plan_.gathered_first.emplace(plan_.nodes[variable].node, plan_.nodes[assign].node);
  }

  // Rows take memory until their values are written. So gathers run ahead of these writes by at
  // most kMostAhead bytes.
  void limit_memory() {
    std::int64_t ahead = 0;  // bytes of rows after the awaited one
    std::size_t awaited = 0;
    for (std::size_t r = 0; r < rows_.size(); ++r) {
      const std::int64_t bytes = plan_.nodes[rows_[r].node].types[0].bytes();
      for (; awaited < r && ahead + bytes > kMostAhead; ++awaited)
        ahead -= plan_.nodes[rows_[awaited].node].types[0].bytes();
      ahead += bytes;
      if (awaited == 0) continue;
      const std::size_t end = r + 1 < rows_.size() ? rows_[r + 1].first : front_.size();
      for (const NodeIndex n : std::span(front_).subspan(rows_[r].first, end - rows_[r].first))
        if (plan_.nodes[n].op == &kRead)
          plan_.nodes[n].after.push_back(rows_[awaited - 1].last_assign);
    }
  }

  // Puts rows in the order of their use, and writes their values right before the first use.
  void order() {
    std::vector<NodeIndex> order = front_;
    auto assign = assigns_.begin();
    for (const NodeIndex n : plan_.nodes.indices()) {
      for (; assign != assigns_.end() && assign->first == n; ++assign)
        order.push_back(assign->second);
      if (!sources_.contains(n) && plan_.nodes[n].op != &kAssignGathered) order.push_back(n);
    }
    keep_nodes(plan_, order);
    sort_nodes(plan_);
  }

  static constexpr std::int64_t kMostAhead = 32 << 20;
  struct Row {
    NodeIndex node;
    std::size_t first;  // the first of its sources, in front_
    NodeIndex last_assign;
  };

  PlanGraph& plan_;
  const Consumers consumers_;
  std::vector<std::pair<NodeIndex, NodeIndex>> assigns_;  // (first user, assign before it)
  std::vector<Row> rows_;                                 // rows of gathered values
  std::set<NodeIndex> sources_;                           // nodes that compute what is gathered
  std::vector<NodeIndex> front_;                          // sources_, each after its inputs
};

}  // namespace

void gather_first(PlanGraph& plan, const PlanContext& context) {
  if (context.gathers_first) Gathers(plan).move();
}

}  // namespace belfry
