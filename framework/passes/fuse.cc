// Puts nodes that work element by element, or vector by vector, into one launch. Apart, each of
// them takes its tensors from memory and brings its results there. Fused, a host runs all of them
// on some thousand elements while those are in cache.
//
// The pass visits nodes in order and holds back those that it may fuse, until another node needs
// what they make. All that wait for that and work on tensors of one size then become one node. So
// no path leaves a fusion and comes back to it: what it needs has run, and what needs it has not.
// What comes after a write of a variable is left alone, since a fusion would make more reads wait
// for that write, and so bind them to another version.
#include <algorithm>
#include <map>
#include <optional>
#include <ranges>
#include <set>
#include <tuple>
#include <utility>

#include "belfry/framework/core_ops/fused.h"
#include "belfry/framework/passes/passes.h"
#include "belfry/framework/plan/fusion.h"

namespace belfry {
namespace {

constexpr std::size_t kMostMembers = 32, kMostTaken = 16;  // of a fusion; by a member

class NodeFuser {
 public:
  explicit NodeFuser(PlanGraph& plan)
      : plan_(plan),
        consumers_(consumers_of(plan)),
        state_(plan.nodes.size()),
        moved_(plan.nodes.size()) {}

  void run() {
    std::vector<NodeIndex> writes;
    for (const NodeIndex n : plan_.nodes.indices())
      if (plan_.nodes[n].writes() > 0) writes.push_back(n);
    const Indexed<PlanNode, char> behind_write = reached_from(consumers_, writes);
    for (const NodeIndex n : plan_.nodes.indices()) {
      State& state = state_[n];
      state.fusible = !behind_write[n] && is_fusible(plan_.nodes[n]);
      state.waits = state.fusible || is_waiting_alias(plan_.nodes[n]);
      if (state.waits) continue;
      emit_needed(n);
      emit(n);
    }
    for (const NodeIndex n : plan_.nodes.indices())
      if (state_[n].waits) emit_group_of(n);
    plan_.nodes = std::move(made_);
  }

 private:
  // What the members of a fusion have in common: where they are, and what they work on.
  struct Kind {
    int device;
    bool divides;
    Division::Kind division;
    std::int64_t elements;
    auto operator<=>(const Kind&) const = default;
  };
  // Fusions among the nodes that are emitted together, before nodes that nobody else uses are
  // parted: each needs those of lower stages alone.
  using Key = std::pair<int, Kind>;
  struct State {
    bool fusible = false;
    bool waits = false;
    int stage = 0;  // among the nodes that are emitted together
  };
  // Where a node of the plan before is now.
  struct Moved {
    NodeIndex node;
    std::vector<Value> outputs;
  };

  static bool runs_by_vectors(const Op& op) {
    return op.split == WorkSplit::kVectors || op.split == WorkSplit::kRunningSums;
  }

  // The type whose elements a node works on.
  TensorType worked_type(const PlanNode& node) const {
    return node.op->split == WorkSplit::kRunningSums ? plan_.type(node.inputs[0]) : node.types[0];
  }

  bool is_fusible(const PlanNode& node) const {
    const Op& op = *node.op;
    const bool plain = std::holds_alternative<std::monostate>(node.role) && !node.shared;
    if (!plain || op.alias || op.writes > 0 || op.collective || op.exchange || op.composite ||
        node.inputs.empty() || node.types.empty() || node.inputs.size() > kMostTaken ||
        (!is_pointwise(op) && !runs_by_vectors(op)))
      return false;
    const TensorType worked = worked_type(node);
    const std::int64_t elements = worked.shape.elements();
    if (elements == 0 || (runs_by_vectors(op) && worked.shape.rank() == 0)) return false;
    for (const TensorType& type : node.types)
      if ((is_half(type.dtype) && !op.half) ||
          (op.split != WorkSplit::kRunningSums && type.shape.elements() != elements))
        return false;
    return op.half || std::ranges::none_of(node.inputs, [&](const Value& input) {
             return is_half(plan_.type(input).dtype);
           });
  }

  bool is_waiting_alias(const PlanNode& node) const {
    return node.op->alias && node.after.empty() && state_[node.inputs[0].node].waits &&
           std::holds_alternative<std::monostate>(node.role) &&
           node.device() == plan_.node(node.inputs[0].node).device();
  }

  Kind kind_of(const PlanNode& node) const {
    Division division;
    if (node.sharding.divides())
      division = node.op->split == WorkSplit::kRunningSums ? Division::by_rows(0)
                                                           : node.sharding.outputs[0];
    return {node.device(), node.sharding.divides(), division.kind,
            worked_type(node).shape.elements()};
  }

  // The length of the vectors that a node works on; 0: it does not.
  std::int64_t columns_of(const PlanNode& node) const {
    return runs_by_vectors(*node.op) ? worked_type(node).shape.back() : 0;
  }

  // The value that aliases which wait are of.
  Value root(Value value) const {
    while (state_[value.node].waits && plan_.node(value.node).op->alias)
      value = plan_.node(value.node).inputs[0];
    return value;
  }

  // Whether a member may take an input block by block from the member that makes it.
  bool flows(const PlanNode& node, std::size_t input) const {
    const TensorType worked = worked_type(node);
    const Value from = root(node.inputs[input]);
    return plan_.type(node.inputs[input]).shape == worked.shape &&
           plan_.node(from.node).op->split != WorkSplit::kRunningSums &&
           kind_of(plan_.node(from.node)) == kind_of(node) &&
           (!node.sharding.divides() || node.sharding.own[input]);
  }

  template <class Visit>
  void for_each_source(const PlanNode& node, const Visit& visit) const {
    for (const Value& input : node.inputs) visit(input.node);
    for (const NodeIndex before : node.after) visit(before);
  }

  void emit_needed(NodeIndex n) {
    for_each_source(plan_.node(n), [&](NodeIndex source) {
      if (state_[source].waits) emit_group_of(source);
    });
  }

  // Emits a node that waits, with all that it needs, and what can go with them.
  void emit_group_of(NodeIndex n) {
    std::set<NodeIndex> group;
    std::vector<NodeIndex> open{n};
    while (!open.empty()) {
      const NodeIndex next = open.back();
      open.pop_back();
      if (!state_[next].waits || !group.insert(next).second) continue;
      for_each_source(plan_.node(next), [&](NodeIndex source) { open.push_back(source); });
    }
    open.assign(group.begin(), group.end());
    for (std::size_t i = 0; i < open.size(); ++i)
      for (const NodeIndex user : consumers_[open[i]]) {
        bool ready = state_[user].waits && !group.contains(user);
        for_each_source(plan_.node(user), [&](NodeIndex source) {
          ready = ready && (!state_[source].waits || group.contains(source));
        });
        if (!ready) continue;
        group.insert(user);
        open.push_back(user);
      }
    emit_all(group);
  }

  // The first stage in which a node can be, by those of its sources.
  int least_stage(NodeIndex n, const std::set<NodeIndex>& nodes) const {
    const PlanNode& node = plan_.node(n);
    int stage = 0;
    for (std::size_t i = 0; i < node.inputs.size(); ++i)
      if (const NodeIndex source = node.inputs[i].node; nodes.contains(source))
        stage = std::max(stage, state_[source].stage + (node.op->alias || flows(node, i) ? 0 : 1));
    for (const NodeIndex before : node.after)
      if (nodes.contains(before)) stage = std::max(stage, state_[before].stage + 1);
    return stage;
  }

  // The last stage, by those of its users; its own if there are none among the nodes.
  int last_stage(NodeIndex n, const std::set<NodeIndex>& nodes) const {
    std::optional<int> stage;
    const auto limit = [&](int most) { stage = std::min(stage.value_or(most), most); };
    for (const NodeIndex user : consumers_[n]) {
      if (!nodes.contains(user)) continue;
      const PlanNode& node = plan_.node(user);
      for (std::size_t i = 0; i < node.inputs.size(); ++i)
        if (node.inputs[i].node == n)
          limit(state_[user].stage - (node.op->alias || flows(node, i) ? 0 : 1));
      if (std::ranges::find(node.after, n) != node.after.end()) limit(state_[user].stage - 1);
    }
    return stage.value_or(state_[n].stage);
  }

  // Each node is in the last stage that its users allow, so that it meets them.
  void find_stages(const std::set<NodeIndex>& nodes) {
    for (const NodeIndex n : nodes) state_[n].stage = 0;
    for (const NodeIndex n : nodes) state_[n].stage = least_stage(n, nodes);
    for (const NodeIndex n : nodes | std::views::reverse) state_[n].stage = last_stage(n, nodes);
  }

  void emit_all(const std::set<NodeIndex>& nodes) {
    std::map<Key, std::vector<NodeIndex>> fusions;
    std::map<Key, std::int64_t> columns;
    std::map<int, std::vector<NodeIndex>> aliases;  // by stage
    find_stages(nodes);
    for (const NodeIndex n : nodes) {
      const PlanNode& node = plan_.node(n);
      int& stage = state_[n].stage;
      stage = std::max(stage, least_stage(n, nodes));
      if (node.op->alias) {
        aliases[stage].push_back(n);
        continue;
      }
      const Kind kind = kind_of(node);
      const std::int64_t own = columns_of(node);
      while (fusions[{stage, kind}].size() >= kMostMembers ||
             (own > 0 && columns[{stage, kind}] > 0 && columns[{stage, kind}] != own))
        ++stage;
      fusions[{stage, kind}].push_back(n);
      if (own > 0) columns[{stage, kind}] = own;
    }
    for (auto next = fusions.begin(); next != fusions.end();) {
      const int stage = next->first.first;
      for (; next != fusions.end() && next->first.first == stage; ++next)
        for (const std::vector<NodeIndex>& members : connected(next->second)) fuse(members);
      for (const NodeIndex alias : aliases[stage])
        if (is_needed(alias)) emit(alias);
    }
    for (const NodeIndex n : nodes) state_[n].waits = false;
  }

  // Parts nodes of which none uses what another makes or takes.
  std::vector<std::vector<NodeIndex>> connected(const std::vector<NodeIndex>& nodes) const {
    std::map<Value, std::size_t> part_of_value;  // what it takes or makes, element by element
    std::vector<std::size_t> part(nodes.size());
    for (std::size_t m = 0; m < nodes.size(); ++m) {
      const PlanNode& node = plan_.node(nodes[m]);
      part[m] = m;
      std::vector<Value> values;
      for (std::size_t i = 0; i < node.inputs.size(); ++i)
        if (plan_.type(node.inputs[i]).shape == worked_type(node).shape)
          values.push_back(root(node.inputs[i]));
      for (std::size_t i = 0; i < node.types.size(); ++i)
        values.push_back({nodes[m], static_cast<int>(i)});
      for (const Value& value : values) {
        const std::size_t other = part_of_value.emplace(value, m).first->second;
        const std::size_t from = part[other], to = part[m];
        std::ranges::replace(part, std::max(from, to), std::min(from, to));
      }
    }
    std::map<std::size_t, std::vector<NodeIndex>> parts;
    for (std::size_t m = 0; m < nodes.size(); ++m) parts[part[m]].push_back(nodes[m]);
    std::vector<std::vector<NodeIndex>> made;
    for (auto& [first, members] : parts) made.push_back(std::move(members));
    return made;
  }

  // Whether a node behind the fusion takes a value of it.
  bool is_taken(Value value, const std::set<NodeIndex>& members) const {
    return std::ranges::any_of(consumers_[value.node], [&](NodeIndex user) {
      const std::vector<Value>& inputs = plan_.node(user).inputs;
      if (members.contains(user) || std::ranges::none_of(inputs, [&](const Value& input) {
            return input.node == value.node && input.index == value.index;
          }))
        return false;
      const bool passes_on = state_[user].waits && plan_.node(user).op->alias;
      return !passes_on || is_taken({user, 0}, members);
    });
  }

  // Whether a node that is no member of the fusion before it takes an alias.
  bool is_needed(NodeIndex alias) {
    const Value from = root({alias, 0});
    return is_taken({alias, 0}, members_of_[from.node]);
  }

  void fuse(const std::vector<NodeIndex>& nodes) {
    const std::set<NodeIndex> members(nodes.begin(), nodes.end());
    for (const NodeIndex n : nodes) members_of_[n] = members;
    PlanNode fused{&kFused, plan_.node(nodes.back()).node, {}, {}, {}, {}};
    Fusion fusion;
    std::vector<std::pair<NodeIndex, int>> taken;  // the outputs
    for (const NodeIndex n : nodes) {
      const PlanNode& node = plan_.node(n);
      for (int i = 0; i < std::ssize(node.types); ++i)
        if (is_taken({n, i}, members)) taken.emplace_back(n, i);
    }
    if (nodes.size() == 1 || taken.empty()) {
      for (const NodeIndex n : nodes) emit(n);
      return;
    }
    std::map<NodeIndex, int> member_of;
    std::map<std::pair<Value, bool>, int> inputs;
    for (const NodeIndex n : nodes) {
      member_of[n] = static_cast<int>(fusion.body.size());
      add_member(n, member_of, inputs, fusion, fused);
    }
    const NodeIndex made = made_.next();
    for (const NodeIndex n : nodes) {
      moved_[n].node = made;
      moved_[n].outputs.resize(plan_.node(n).types.size());
    }
    for (const auto& [n, i] : taken) {
      const PlanNode& node = plan_.node(n);
      moved_[n].outputs[at(i)] = {made, static_cast<int>(fused.types.size())};
      fusion.outputs.push_back({member_of[n], i});
      fused.types.push_back(node.types[at(i)]);
      fused.devices.push_back(node.devices[at(i)]);
      if (node.sharding.divides()) fused.sharding.outputs.push_back(node.sharding.outputs[at(i)]);
    }
    fused.role = std::make_shared<const Fusion>(std::move(fusion));
    made_.push_back(std::move(fused));
  }

  void add_member(NodeIndex n, const std::map<NodeIndex, int>& member_of,
                  std::map<std::pair<Value, bool>, int>& inputs, Fusion& fusion,
                  PlanNode& fused) const {
    const PlanNode& node = plan_.node(n);
    Fusion::Member member{node.op, node.node, {}, node.types, node.devices};
    member.sharding = node.sharding;
    member.rows = node.rows;
    if (node.rows > 0) fused.rows = node.rows;
    for (std::size_t i = 0; i < node.inputs.size(); ++i) {
      member.taken.push_back(plan_.type(node.inputs[i]));
      const Value from = root(node.inputs[i]);
      if (const auto giver = member_of.find(from.node); giver != member_of.end()) {
        member.inputs.push_back({giver->second, from.index});
        continue;
      }
      const bool own = node.sharding.divides() && node.sharding.own[i];
      const auto [input, fresh] =
          inputs.emplace(std::pair(moved(node.inputs[i]), own), std::ssize(fused.inputs));
      if (fresh) {
        fused.inputs.push_back(moved(node.inputs[i]));
        if (node.sharding.divides()) fused.sharding.own.push_back(own);
      }
      member.inputs.push_back({Fusion::Source::kInput, input->second});
    }
    for (const NodeIndex before : node.after)
      if (!member_of.contains(before)) fused.after.push_back(moved_[before].node);
    fusion.body.push_back(std::move(member));
  }

  Value moved(Value value) const {
    Value now = moved_[value.node].outputs[at(value.index)];
    now.shard = value.shard;
    return now;
  }

  void emit(NodeIndex n) {
    PlanNode node = plan_.node(n);
    for (Value& input : node.inputs) input = moved(input);
    for (NodeIndex& before : node.after) before = moved_[before].node;
    Moved& now = moved_[n];
    now.node = made_.next();
    for (std::size_t i = 0; i < node.types.size(); ++i)
      now.outputs.push_back({now.node, static_cast<int>(i)});
    made_.push_back(std::move(node));
  }

  PlanGraph& plan_;
  NodeLists consumers_;
  Indexed<PlanNode, State> state_;
  Indexed<PlanNode, Moved> moved_;
  std::map<NodeIndex, std::set<NodeIndex>> members_of_;
  Indexed<PlanNode> made_;
};

}  // namespace

void fuse(PlanGraph& plan, const PlanContext& context) {
  // Beside GPUs a host has little to do, and what waits for it would wait longer.
  const bool gpus = std::ranges::any_of(plan.nodes, [&](const PlanNode& node) {
    return std::ranges::any_of(node.devices, [&](int d) { return context.device(d).on_gpu(); });
  });
  if (context.fuse && !context.reference_kernels && !gpus) NodeFuser(plan).run();
}

}  // namespace belfry
