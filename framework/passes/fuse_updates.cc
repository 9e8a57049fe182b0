// Fuses updates with the launch that computes their input. Alone, a sum of gradients goes to memory
// and comes back for the update. Fused, a host applies the sum some thousand elements at a time
// while they are in cache, and a GPU while they are in registers. The same pass adds the partial
// sums of shards. A GPU also gets updates without a sum in groups, because a launch there costs
// more than most updates. A fusion runs all its members at one time. So the pass first checks that
// no read gets another version of a variable, and that each value is read before it is overwritten.
#include <algorithm>
#include <iterator>
#include <map>
#include <set>
#include <utility>

#include "belfry/framework/core_ops/assign.h"
#include "belfry/framework/core_ops/fused_update.h"
#include "belfry/framework/core_ops/gather_shards.h"
#include "belfry/framework/passes/nodes.h"
#include "belfry/framework/passes/passes.h"
#include "belfry/framework/plan/fused_update.h"

namespace belfry {
namespace {

// Whether the node updates whole variables, element by element.
bool is_update(const PlanGraph& plan, const PlanNode& node) {
  const Op& op = *node.op;
  if (is_half(node.types.empty() ? DType::kF32 : node.types[0].dtype) && !op.half) return false;
  return op.elementwise_input >= op.writes && op.writes > 0 && op.split == WorkSplit::kElements &&
         at(op.writes) == node.types.size() && node.inputs.size() <= FusedTensors::kMostInputs &&
         plan.type(node.inputs[at(op.elementwise_input)]) == node.types[0];
}

// The role of an input of a member, in the order of the fused node's inputs.
enum class Part { kWritten, kCombined, kOther };

Part part_of(const Op& op, int input) {
  if (input < op.writes) return Part::kWritten;
  return op.writes == 0 || input == op.elementwise_input ? Part::kCombined : Part::kOther;
}

class UpdateFuser {
 public:
  UpdateFuser(PlanGraph& plan, const PlanContext& context)
      : plan_(plan),
        context_(context),
        consumers_(consumers_of(plan)),
        walker_(plan.nodes.size()) {}

  void run() {
    for (const NodeIndex n : plan_.nodes.indices())
      if (is_fusible(plan_.nodes[n])) consider(n);
    group_others();
    if (!replacements_.nodes.empty())
      replace_or_give_up(plan_, replacements_, NodeIndex(consumers_.size()));
  }

 private:
  struct Member {
    NodeIndex node;
    int result;  // the output of the collective that it applies
  };

  bool is_fusible(const PlanNode& node) const {
    if (node.op == &kSumShards) return true;
    if (!node.op->collective || node.op->split != WorkSplit::kElements) return false;
    const int space = space_of(node.devices);
    if (space <= 0) return space == 0 && at(node.participants()) <= FusedTensors::kMostParticipants;
    return node.op->fused_update_on_gpus && node.types[0].dtype == DType::kF32 &&
           node.participants() <= FusedTensors::kMostOnGpus;
  }

  // The memory space of the devices; -1: they have several.
  int space_of(const std::vector<int>& devices) const {
    const auto of = [&](int d) { return context_.device(d).memory_space; };
    const bool same = std::ranges::all_of(devices, [&](int d) { return of(d) == of(devices[0]); });
    return same ? of(devices[0]) : -1;
  }

  void consider(NodeIndex sum) {
    std::vector<Member> members;
    const int space = space_of(plan_.node(sum).devices);
    for (const NodeIndex user : consumers_[sum]) {
      const auto& inputs = plan_.node(user).inputs;
      const auto uses = std::ranges::count(inputs, sum, &Value::node);
      if (uses == 0) continue;  // it waits for the sum and does not read it
      if (uses > 1 || !applies(plan_.node(user), sum, space)) return;
      members.push_back({user, inputs[at(plan_.node(user).op->elementwise_input)].index});
    }
    std::vector<NodeIndex> body = shard_sums(sum);
    body.push_back(sum);
    if (members.empty() || !has_kernel(sum, members) ||
        !reads_before_writes(plan_.node(sum).inputs, participants(sum), members) ||
        !keeps_versions(body, members))
      return;
    for (const Member& member : members) body.push_back(member.node);
    fuse(body, *plan_.node(sum).node);
  }

  int participants(NodeIndex sum) const { return std::max(1, plan_.node(sum).participants()); }

  // The sums over shards of all participants of a collective. Empty unless each participant has
  // such a sum, which nothing but the collective reads.
  std::vector<NodeIndex> shard_sums(NodeIndex sum) const {
    const PlanNode& collective = plan_.node(sum);
    std::vector<NodeIndex> sums;
    if (collective.participants() == 0 || space_of(collective.devices) != 0 ||
        at(collective.participants()) > FusedTensors::kMostSharded)
      return {};
    for (const Value& input : collective.inputs) {
      if (plan_.node(input.node).op != &kSumShards || consumers_[input.node].size() != 1) return {};
      sums.push_back(input.node);
    }
    return sums;
  }

  // Groups updates that apply no sum. GPU launches cost more than most updates, so updates of one
  // op on one device share a launch, if they follow each other and it has room.
  void group_others() {
    std::map<std::pair<int, const Op*>, std::vector<Member>> open;
    const Indexed<PlanNode, char> behind = behind_updates();
    for (const NodeIndex n : consumers_.indices()) {
      const PlanNode& node = plan_.nodes[n];
      if (behind[n] || !is_grouped(node) || is_fused(n)) continue;
      std::vector<Member>& members = open[{node.device(), node.op}];
      members.push_back({n, static_cast<int>(members.size())});
      if (std::ssize(members) == FusedTensors::kMostGrouped) group(std::exchange(members, {}));
    }
    for (const auto& [kind, members] : open) group(members);
  }

  bool is_grouped(const PlanNode& node) const {
    return is_update(plan_, node) && space_of(node.devices) > 0 && node.op->fused_update_on_gpus &&
           node.op != &kAssign && node.types[0].dtype == DType::kF32;
  }

  bool is_fused(NodeIndex n) const { return replacements_.nodes.contains(n); }

  // Nodes after some of the updates. Groups and fusions leave them out, so they close no cycle.
  Indexed<PlanNode, char> behind_updates() const {
    std::vector<NodeIndex> after;
    for (const NodeIndex n : consumers_.indices())
      if (is_fused(n) || is_grouped(plan_.nodes[n]))
        after.insert(after.end(), consumers_[n].begin(), consumers_[n].end());
    return reached_from(consumers_, after);
  }

  void group(const std::vector<Member>& members) {
    std::vector<Value> gradients;
    std::vector<NodeIndex> body;
    for (const Member& member : members) {
      const PlanNode& update = plan_.node(member.node);
      gradients.push_back(update.inputs[at(update.op->elementwise_input)]);
      body.push_back(member.node);
    }
    if (members.size() > 1 && reads_before_writes(gradients, 1, members) &&
        keeps_versions({}, members))
      fuse(body, *plan_.node(body[0]).node);
  }

  // Whether `user` is an update that applies `sum`, in the memory space `space` of the sum.
  bool applies(const PlanNode& user, NodeIndex sum, int space) const {
    return is_update(plan_, user) && user.inputs[at(user.op->elementwise_input)].node == sum &&
           space_of(user.devices) == space;
  }

  // Whether there is a kernel. GPU kernels apply a sum only by updates of one op.
  bool has_kernel(NodeIndex sum, const std::vector<Member>& members) const {
    const PlanNode& collective = plan_.node(sum);
    if (space_of(collective.devices) == 0) return true;
    std::map<int, std::vector<const Op*>> updates;  // of each tensor
    for (const Member& member : members)
      updates[member.result / participants(sum)].push_back(plan_.node(member.node).op);
    return std::ranges::all_of(updates, [](const auto& of_tensor) {
      const std::vector<const Op*>& ops = of_tensor.second;
      return ops[0]->fused_update_on_gpus && std::ssize(ops) <= FusedTensors::kMostOnGpus &&
             std::ranges::count(ops, ops[0]) == std::ssize(ops);
    });
  }

  // A path from one member will become a path from all of them. So no path may lead to a member.
  // Nor may one lead to a user of a variable, unless a path already leads there from that
  // variable's own update.
  bool keeps_versions(const std::vector<NodeIndex>& sums, const std::vector<Member>& members) {
    const std::set<NodeIndex> summed(sums.begin(), sums.end());
    std::set<NodeIndex> fused = summed;
    for (const Member& member : members) fused.insert(member.node);
    std::vector<NodeIndex> after;
    for (const NodeIndex n : fused)
      std::ranges::copy_if(consumers_[n], std::back_inserter(after), [&](NodeIndex user) {
        return !fused.contains(user) || !summed.contains(n);
      });
    const std::vector<NodeIndex> all = walker_.reached_from(consumers_, after);
    if (std::ranges::any_of(fused, [&](NodeIndex n) { return contains(all, n); })) return false;
    return std::ranges::all_of(members, [&](const Member& member) {
      const std::vector<NodeIndex> own = walker_.reached_from(consumers_, consumers_[member.node]);
      const auto& written = plan_.node(member.node).inputs;
      for (int i = 0; i < plan_.node(member.node).op->writes; ++i)
        for (const NodeIndex user : consumers_[written[at(i)].node])
          if (contains(all, user) && !contains(own, user)) return false;
      return true;
    });
  }

  static bool contains(const std::vector<NodeIndex>& sorted, NodeIndex n) {
    return std::ranges::binary_search(sorted, n);
  }

  // A fusion handles tensor by tensor, and writes one part by part before it reads the next. So
  // only the sum of a tensor may read what the fusion writes for that tensor, element by element.
  bool reads_before_writes(std::span<const Value> summed, int participants,
                           const std::vector<Member>& members) const {
    std::map<NodeIndex, int> written_by;  // variable -> tensor
    for (const Member& member : members) {
      const PlanNode& update = plan_.node(member.node);
      for (int i = 0; i < update.op->writes; ++i)
        if (!written_by.emplace(update.inputs[at(i)].node, member.result / participants).second)
          return false;
    }
    // `tensor`: the one that the input is a part of, or -1.
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

  // Replaces `nodes`, which are in an order in which they could run, by one node, named as `named`.
  void fuse(const std::vector<NodeIndex>& nodes, const Node& named) {
    FusedUpdate update;
    PlanNode fused{&kFusedUpdate, &named, {}, {}, {}, {}};
    for (const NodeIndex n : nodes) {
      const PlanNode& node = plan_.node(n);
      update.body.push_back({node.op, node.node, {}, node.types, node.devices});
      update.body.back().inputs.resize(node.inputs.size());
    }
    add_inputs(nodes, update, fused);
    add_outputs(nodes, update, fused);
    fused.role = std::make_shared<const FusedUpdate>(std::move(update));
    plan_.nodes.push_back(std::move(fused));
  }

  void add_inputs(const std::vector<NodeIndex>& nodes, FusedUpdate& update, PlanNode& fused) const {
    std::map<NodeIndex, int> member_of;
    for (std::size_t m = 0; m < nodes.size(); ++m) member_of[nodes[m]] = static_cast<int>(m);
    for (const Part part : {Part::kWritten, Part::kCombined, Part::kOther})
      for (std::size_t m = 0; m < nodes.size(); ++m) {
        const PlanNode& node = plan_.node(nodes[m]);
        for (std::size_t i = 0; i < node.inputs.size(); ++i) {
          if (part_of(*node.op, static_cast<int>(i)) != part) continue;
          FusedUpdate::Source& source = update.body[m].inputs[i];
          if (const auto giver = member_of.find(node.inputs[i].node); giver != member_of.end()) {
            source = {giver->second, node.inputs[i].index};
          } else {
            source.index = static_cast<int>(fused.inputs.size());
            fused.inputs.push_back(node.inputs[i]);
          }
        }
      }
  }

  // The outputs are those of updates. Only members read the results of a collective.
  void add_outputs(const std::vector<NodeIndex>& nodes, FusedUpdate& update, PlanNode& fused) {
    const NodeIndex made = plan_.nodes.next();
    for (std::size_t m = 0; m < nodes.size(); ++m) {
      const PlanNode& node = plan_.node(nodes[m]);
      replacements_.nodes[nodes[m]] = made;
      for (int i = 0; i < node.op->writes; ++i) {
        replacements_.values[{nodes[m], i}] = {made, static_cast<int>(fused.types.size())};
        update.outputs.push_back({static_cast<int>(m), i});
        ++update.writes;
        fused.types.push_back(node.types[at(i)]);
        fused.devices.push_back(node.devices[at(i)]);
      }
    }
  }

  PlanGraph& plan_;
  const PlanContext& context_;
  Consumers consumers_;
  Walker walker_;
  Replacements replacements_;
};

}  // namespace

void fuse_updates(PlanGraph& plan, const PlanContext& context) {
  if (context.options.fuse && plan.writes) UpdateFuser(plan, context).run();
}

}  // namespace belfry
