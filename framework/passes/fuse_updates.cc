#include <algorithm>
#include <iterator>
#include <map>
#include <set>
#include <utility>

#include "belfry/framework/core_ops/assign.h"
#include "belfry/framework/core_ops/fused_update.h"
#include "belfry/framework/passes/passes.h"

namespace belfry {
namespace {

class UpdateFuser {
 public:
  UpdateFuser(PlanGraph& plan, const PlanContext& context)
      : plan_(plan), context_(context), consumers_(consumers_of(plan)) {}

  void run() {
    const std::size_t count = plan_.nodes.size();
    for (std::size_t n = 0; n < count; ++n)
      if (is_fusible(plan_.nodes[n])) consider(static_cast<int>(n));
    group_others(count);
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

  bool is_fusible(const PlanNode& node) const {
    if (!node.op->collective || node.op->split != Split::kElements) return false;
    const int space = space_of(node.devices);
    if (space <= 0) return space == 0 && at(node.participants()) <= Fusion::kMostParticipants;
    return node.op->fuses_on_gpus && node.types[0].dtype == DType::kF32 &&
           node.participants() <= Fusion::kMostOnGpus;
  }

  // The memory space of the devices, or -1 if they have several.
  int space_of(const std::vector<int>& devices) const {
    const auto of = [&](int d) { return context_.device(d).memory_space; };
    const bool same = std::ranges::all_of(devices, [&](int d) { return of(d) == of(devices[0]); });
    return same ? of(devices[0]) : -1;
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
    const PlanNode& collective = plan_.node(sum);
    if (members.empty() || !has_kernel(sum, members) ||
        !reads_before_writes(collective.inputs, collective.participants(), members) ||
        !keeps_versions(sum, members))
      return;
    fuse(members, collective.inputs,
         {.op = collective.op,
          .participants = collective.participants(),
          .writes = 0,
          .first_input = 0,
          .types = collective.types,
          .devices = collective.devices,
          .updates = {}},
         *collective.node);
    replacements_.nodes[sum] = static_cast<int>(plan_.nodes.size()) - 1;
  }

  // Launches of GPUs cost more than most updates: those of an op on a device that no collective
  // brings together go into one, as many as follow each other and it has room for.
  void group_others(std::size_t count) {
    std::map<std::pair<int, const Op*>, std::vector<Member>> open;
    const std::vector<char> behind = behind_updates(count);
    for (std::size_t n = 0; n < count; ++n) {
      const PlanNode& node = plan_.nodes[n];
      if (behind[n] || !is_grouped(node) || is_fused(static_cast<int>(n))) continue;
      std::vector<Member>& members = open[{node.device(), node.op}];
      members.push_back({static_cast<int>(n), static_cast<int>(members.size())});
      if (std::ssize(members) == Fusion::kMostGrouped) group(std::exchange(members, {}));
    }
    for (const auto& [kind, members] : open) group(members);
  }

  bool is_grouped(const PlanNode& node) const {
    return is_update(node) && space_of(node.devices) > 0 && node.op->fuses_on_gpus &&
           node.op != &kAssign && node.types[0].dtype == DType::kF32;
  }

  bool is_fused(int n) const { return replacements_.nodes.contains(n); }

  // What comes after some of the updates: without it, groups and fusions close no cycles.
  std::vector<char> behind_updates(std::size_t count) const {
    std::vector<int> after;
    for (std::size_t n = 0; n < count; ++n)
      if (is_fused(static_cast<int>(n)) || is_grouped(plan_.nodes[n]))
        after.insert(after.end(), consumers_[n].begin(), consumers_[n].end());
    return reached_from(consumers_, after);
  }

  void group(const std::vector<Member>& members) {
    std::vector<Value> gradients;
    Fusion fusion{.op = nullptr,
                  .participants = 1,
                  .writes = 0,
                  .first_input = 0,
                  .types = {},
                  .devices = {},
                  .updates = {}};
    for (const Member& member : members) {
      const PlanNode& update = plan_.node(member.node);
      gradients.push_back(update.inputs[at(update.op->elementwise_input)]);
      fusion.types.push_back(plan_.type(gradients.back()));
      fusion.devices.push_back(update.device());
    }
    if (members.size() > 1 && reads_before_writes(gradients, 1, members) &&
        keeps_versions(-1, members))
      fuse(members, gradients, std::move(fusion), *plan_.node(members[0].node).node);
  }

  bool applies(const PlanNode& user, int sum) const {
    return is_update(user) && user.inputs[at(user.op->elementwise_input)].node == sum &&
           space_of(user.devices) == space_of(plan_.node(sum).devices);
  }

  static bool is_update(const PlanNode& node) {
    const Op& op = *node.op;
    if (is_half(node.types.empty() ? DType::kF32 : node.types[0].dtype) && !op.half) return false;
    return op.elementwise_input >= op.writes && op.writes > 0 && op.split == Split::kElements &&
           at(op.writes) == node.types.size() && node.inputs.size() <= Fusion::kMostInputs;
  }

  // A kernel of a GPU applies a sum by one op.
  bool has_kernel(int sum, const std::vector<Member>& members) const {
    const PlanNode& collective = plan_.node(sum);
    if (space_of(collective.devices) == 0) return true;
    std::map<int, std::vector<const Op*>> updates;  // of each tensor
    for (const Member& member : members)
      updates[member.result / collective.participants()].push_back(plan_.node(member.node).op);
    return std::ranges::all_of(updates, [](const auto& of_tensor) {
      const std::vector<const Op*>& ops = of_tensor.second;
      return ops[0]->fuses_on_gpus && std::ssize(ops) <= Fusion::kMostOnGpus &&
             std::ranges::count(ops, ops[0]) == std::ssize(ops);
    });
  }

  // What a path from one member reaches, a path from all of them will. No member may be reached,
  // and no user of a variable that was not reached from that variable's own update.
  bool keeps_versions(int sum, const std::vector<Member>& members) const {
    std::set<int> fused;
    if (sum >= 0) fused.insert(sum);
    for (const Member& member : members) fused.insert(member.node);
    std::vector<int> after;
    for (const int n : fused)
      std::ranges::copy_if(consumers_[at(n)], std::back_inserter(after),
                           [&](int user) { return n != sum || !fused.contains(user); });
    const std::vector<char> all = reached_from(consumers_, after);
    if (std::ranges::any_of(fused, [&](int n) { return all[at(n)]; })) return false;
    return std::ranges::all_of(members, [&](const Member& member) {
      const std::vector<char> own = reached_from(consumers_, consumers_[at(member.node)]);
      const auto& written = plan_.node(member.node).inputs;
      for (int i = 0; i < plan_.node(member.node).op->writes; ++i)
        for (const int user : consumers_[at(written[at(i)].node)])
          if (all[at(user)] && !own[at(user)]) return false;
      return true;
    });
  }

  // A fusion writes what belongs to one tensor, part by part, before it reads the next. So nothing
  // that it writes may be read but by its own tensor's sum, element by element.
  bool reads_before_writes(std::span<const Value> summed, int participants,
                           const std::vector<Member>& members) const {
    std::map<int, int> written_by;  // variable -> tensor
    for (const Member& member : members) {
      const PlanNode& update = plan_.node(member.node);
      for (int i = 0; i < update.op->writes; ++i)
        if (!written_by.emplace(update.inputs[at(i)].node, member.result / participants).second)
          return false;
    }
    // `tensor`: the one that the input is part of, or -1.
    const auto is_safe = [&](Value input, int tensor) {
      const auto written = written_by.find(root_of(plan_, input).node);
      return written == written_by.end() || written->second == tensor;
    };
    for (int i = 0; i < std::ssize(summed); ++i)
      if (!is_safe(summed[at(i)], i / participants)) return false;
    return std::ranges::all_of(members, [&](const Member& member) {
      const PlanNode& update = plan_.node(member.node);
      for (int i = update.op->writes; i < std::ssize(update.inputs); ++i)
        if (i != update.op->elementwise_input && !is_safe(update.inputs[at(i)], -1)) return false;
      return true;
    });
  }

  void fuse(const std::vector<Member>& members, std::span<const Value> summed, Fusion fusion,
            const Node& named) {
    const int fused = static_cast<int>(plan_.nodes.size());
    PlanNode node{&kFusedUpdate, &named, {}, {}, {}, {}};
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
    fusion.first_input = fusion.writes;
    node.inputs.insert(node.inputs.end(), summed.begin(), summed.end());
    for (std::size_t m = 0; m < members.size(); ++m)
      add_other_inputs(plan_.node(members[m].node), fusion.updates[m], node);
    node.role = std::make_shared<const Fusion>(std::move(fusion));
    plan_.nodes.push_back(std::move(node));
  }

  static void add_other_inputs(const PlanNode& update, Fusion::Update& kept, PlanNode& node) {
    for (int i = update.op->writes; i < std::ssize(update.inputs); ++i) {
      const bool combined = i == update.op->elementwise_input;
      kept.inputs.push_back(combined ? -1 : static_cast<int>(node.inputs.size()));
      if (!combined) node.inputs.push_back(update.inputs[at(i)]);
    }
  }

  PlanGraph& plan_;
  const PlanContext& context_;
  std::vector<std::vector<int>> consumers_;
  Replacements replacements_;
};

}  // namespace

void fuse_updates(PlanGraph& plan, const PlanContext& context) {
  if (context.fuse_updates && plan.writes) UpdateFuser(plan, context).run();
}

}  // namespace belfry
