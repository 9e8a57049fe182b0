#include <algorithm>
#include <set>

#include "belfry/framework/core_ops/fused_update.h"
#include "belfry/framework/passes/passes.h"

namespace belfry {
namespace {

class UpdateFuser {
 public:
  UpdateFuser(Plan& plan, const PlanContext& context)
      : plan_(plan), context_(context), consumers_(consumers_of(plan)) {}

  void run() {
    const std::size_t count = plan_.nodes.size();
    for (std::size_t n = 0; n < count; ++n)
      if (on_one_host(plan_.nodes[n])) consider(static_cast<int>(n));
    // Fusions that close a cycle with each other are given up, all of them: graphs of training
    // programs have none.
    if (!replacements_.nodes.empty() && !replace_nodes(plan_, replacements_))
      plan_.nodes.resize(count);
  }

 private:
  struct Member {
    int node;
    int result;  // the output of the collective that it applies
  };

  bool on_one_host(const PlanNode& node) const {
    if (!node.op->collective || node.op->split != Split::kElements ||
        at(node.participants()) > Fusion::kMostParticipants)
      return false;
    const Device& first = *context_.devices[at(node.devices[0])];
    return std::ranges::all_of(node.devices, [&](int d) {
      const Device& device = *context_.devices[at(d)];
      return !device.declared && device.memory_space == first.memory_space;
    });
  }

  void consider(int sum) {
    std::vector<Member> members;
    for (const int user : consumers_[at(sum)]) {
      const auto& inputs = plan_.node(user).inputs;
      const auto uses = std::ranges::count(inputs, sum, &Value::node);
      if (uses == 0) continue;  // it waits for the sum and does not read it
      if (uses > 1 || !applies(plan_.node(user), sum)) return;
      members.push_back({user, inputs[at(plan_.node(user).op->elementwise_input)].index});
    }
    if (!members.empty() && keeps_versions(sum, members)) fuse(sum, members);
  }

  bool applies(const PlanNode& user, int sum) const {
    const Op& op = *user.op;
    return op.elementwise_input >= op.writes && op.writes > 0 && op.split == Split::kElements &&
           at(op.writes) == user.types.size() && user.inputs.size() <= Fusion::kMostInputs &&
           user.inputs[at(op.elementwise_input)].node == sum;
  }

  // What a path from one member reaches, a path from all of them will. No member may be reached,
  // and no user of a variable that was not reached from that variable's own update.
  bool keeps_versions(int sum, const std::vector<Member>& members) {
    std::set<int> all;
    std::set<int> member_nodes{sum};
    for (const Member& member : members) member_nodes.insert(member.node);
    for (const int user : consumers_[at(sum)])
      if (!member_nodes.contains(user)) reach(user, all);
    std::vector<std::set<int>> from(members.size());
    for (std::size_t m = 0; m < members.size(); ++m) {
      for (const int user : consumers_[at(members[m].node)]) reach(user, from[m]);
      all.insert(from[m].begin(), from[m].end());
    }
    if (std::ranges::any_of(all, [&](int n) { return member_nodes.contains(n); })) return false;
    std::set<int> written;
    for (std::size_t m = 0; m < members.size(); ++m) {
      const PlanNode& update = plan_.node(members[m].node);
      for (int i = 0; i < update.op->writes; ++i) {
        const int variable = update.inputs[at(i)].node;
        if (!written.insert(variable).second) return false;
        for (const int user : consumers_[at(variable)])
          if (all.contains(user) && !from[m].contains(user)) return false;
      }
    }
    return true;
  }

  void reach(int start, std::set<int>& reached) const {
    std::vector<int> open{start};
    while (!open.empty()) {
      const int n = open.back();
      open.pop_back();
      if (reached.insert(n).second)
        open.insert(open.end(), consumers_[at(n)].begin(), consumers_[at(n)].end());
    }
  }

  void fuse(int sum, const std::vector<Member>& members) {
    const PlanNode& collective = plan_.node(sum);
    const int fused = static_cast<int>(plan_.nodes.size());
    Fusion fusion{.op = collective.op,
                  .participants = collective.participants(),
                  .writes = 0,
                  .first_input = 0,
                  .types = collective.types,
                  .devices = collective.devices,
                  .updates = {}};
    PlanNode node{&kFusedUpdate, collective.node, {}, {}, {}, {}};
    for (const Member& member : members) {
      const PlanNode& update = plan_.node(member.node);
      Fusion::Update kept{update.op, update.node, {}, update.types, fusion.writes, member.result};
      for (int i = 0; i < update.op->writes; ++i) {
        replacements_.values[{member.node, i}] = {fused, fusion.writes};
        kept.inputs.push_back(fusion.writes++);
        node.inputs.push_back(update.inputs[at(i)]);
        node.types.push_back(update.types[at(i)]);
        node.devices.push_back(update.devices[at(i)]);
      }
      fusion.updates.push_back(std::move(kept));
      replacements_.nodes[member.node] = fused;
    }
    replacements_.nodes[sum] = fused;
    fusion.first_input = fusion.writes;
    node.inputs.insert(node.inputs.end(), collective.inputs.begin(), collective.inputs.end());
    for (std::size_t m = 0; m < members.size(); ++m)
      add_other_inputs(plan_.node(members[m].node), fusion.updates[m], node);
    node.fusion = std::make_shared<const Fusion>(std::move(fusion));
    plan_.nodes.push_back(std::move(node));
  }

  static void add_other_inputs(const PlanNode& update, Fusion::Update& kept, PlanNode& node) {
    for (int i = update.op->writes; i < std::ssize(update.inputs); ++i) {
      const bool combined = i == update.op->elementwise_input;
      kept.inputs.push_back(combined ? -1 : static_cast<int>(node.inputs.size()));
      if (!combined) node.inputs.push_back(update.inputs[at(i)]);
    }
  }

  Plan& plan_;
  const PlanContext& context_;
  std::vector<std::vector<int>> consumers_;
  Replacements replacements_;
};

}  // namespace

void fuse_updates(Plan& plan, const PlanContext& context) {
  if (context.fuse_updates && plan.writes) UpdateFuser(plan, context).run();
}

}  // namespace belfry
