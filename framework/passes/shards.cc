// Cuts the work of each device into the shards of its batch. Feeds of samples are cut by rows. From
// there each op's rule (framework/graph/shards.h) says how its outputs are divided, or the op
// replaces the node by others (framework/plan/expansion.h). A node that cannot be divided gets its
// inputs whole, from a GatherShards or a SumShards. A SumShards adds the partial sums of all shards
// along the canonical tree.
//
// Results depend only on the shards: a kernel sees the rows of one shard, whichever device has it.
#include <map>
#include <utility>

#include "belfry/framework/base/require.h"
#include "belfry/framework/core_ops/fill.h"
#include "belfry/framework/core_ops/gather_shards.h"
#include "belfry/framework/passes/nodes.h"
#include "belfry/framework/passes/passes.h"
#include "belfry/framework/passes/tower_dependence.h"
#include "belfry/framework/plan/expansion.h"

namespace belfry {
namespace {

class ShardMaker {
 public:
  ShardMaker(PlanGraph& plan, const PlanContext& context) : plan_(plan), context_(context) {}

  void run() {
    find_batches();
    if (plan_.batches.empty() &&
        std::ranges::none_of(plan_.nodes, [](const PlanNode& node) { return node.op->composite; }))
      return;
    Indexed<PlanNode> nodes = std::exchange(plan_.nodes, {});
    plan_.nodes.reserve(nodes.size());
    moved_.reserve(nodes.size());
    cut_.reserve(nodes.size());
    for (PlanNode& node : nodes) {
      moved_.emplace_back();
      place_inputs(node);
      visit(std::move(node));
    }
    note_tower_dependence(plan_, cut_);
    if (plan_.nodes.size() > nodes.size()) sort_nodes(plan_);
  }

 private:
  void find_batches() {
    for (const PlanNode& node : plan_.nodes) {
      if (node.feed() < 0 || !plan_.feeds[at(node.feed())].first_sample) continue;
      if (context_.device(node.device()).on_gpu() && context_.options.shards_per_device > 1)
        continue;
      const std::int64_t samples = node.types[0].shape[0];
      plan_.batches.resize(context_.devices.size());
      DeviceBatch& batch = plan_.batches[at(node.device())];
      const DeviceBatch fed{samples, *plan_.feeds[at(node.feed())].first_sample};
      require(batch.samples == 0 || (batch.samples == fed.samples && batch.first == fed.first),
              node.node->describe(), ": has ", samples, " samples from number ", fed.first,
              " on, but another feed of ", context_.device(node.device()).spec, " has ",
              batch.samples, " from number ", batch.first, " on; feeds of one device must agree");
      batch = fed;
    }
    plan_.shards_per_device =
        plan_.locks == LockDuration::kEachVariable ? 1 : context_.options.shards_per_device;
  }

  // Binds inputs to the new places or replacements of their nodes.
  void place_inputs(PlanNode& node) const {
    for (Value& input : node.inputs) input = moved_[input.node].output(input.index);
    for (NodeIndex& before : node.after) before = moved_[before].node;
  }

  void visit(PlanNode node) {
    if (node.op->composite) return expand_everywhere(std::move(node));
    std::vector<Division> cut(node.types.size());
    const DeviceBatch batch =
        plan_.batches.empty() ? DeviceBatch() : plan_.batches[at(node.device())];
    if (node.feed() >= 0 && batch.samples > 0) {
      if (plan_.feeds[at(node.feed())].first_sample) cut = {Division::by_rows(1)};
      return finish(append(std::move(node), cut));
    }
    const Sharding sharding = batch.samples > 0 ? ask(node, batch.samples) : Sharding();
    if (!sharding.divides()) {
      // All shapes are known, so backward passes need not wait for the losses of all shards.
      if (node.op == &kFillLike) node.inputs.clear();
      gather_inputs(node);
      return finish(append(std::move(node), cut));
    }
    if (plan_.shards_per_device > 1 && node.op->expand) return expand(node, sharding);
    cut = sharding.outputs;
    if (!cut.empty() && cut[0].kind == Division::Kind::kRows) node.rows = cut[0].rows;
    // A whole tensor, such as a feed, stays whole under its aliases.
    if (plan_.shards_per_device > 1 && !(node.op->alias && !plan_.division(node.inputs[0]))) {
      node.sharding = sharding;
      for (std::size_t i = 0; i < node.inputs.size(); ++i)
        if (!sharding.own[i] && plan_.division(node.inputs[i]) == Division::partial())
          node.inputs[i] = gathered(node.inputs[i]);
    }
    finish(append(std::move(node), cut));
  }

  Sharding ask(const PlanNode& node, std::int64_t samples) const {
    const bool plain = std::holds_alternative<std::monostate>(node.role);
    if (!plain || !node.op->shards || node.writes() > 0) return {};
    std::vector<Division> divisions;
    divisions.reserve(node.inputs.size());
    for (const Value& input : node.inputs) {
      if (plan_.device(input) != node.device() && cut_at(input)) return {};
      divisions.push_back(cut_at(input));
    }
    const std::vector<TensorType> inputs = plan_.input_types(node);
    return node.op->shards({*node.node, inputs, node.types, divisions, samples});
  }

  const Division& cut_at(Value value) const { return cut_[value.node][at(value.index)]; }

  NodeIndex append(PlanNode node, std::vector<Division> cut) {
    cut_.push_back(std::move(cut));
    return plan_.nodes.add(std::move(node));
  }

  // Records that node n has replaced the visited node.
  void finish(NodeIndex n) { moved_.back().node = n; }

  void expand(const PlanNode& node, const Sharding& sharding) {
    const auto add = [&](PlanNode made) {
      std::vector<Division> cut = made.sharding.outputs;
      cut.resize(made.types.size());
      return append(std::move(made), std::move(cut));
    };
    Expansion expansion(
        plan_, node, sharding, add, [&](Value value) { return gathered(value); },
        [&](Value x) {
          return plan_.shards_per_device > 1 && cut_at(x).kind == Division::Kind::kRows;
        });
    node.op->expand(expansion);
    for (const NodeIndex before : node.after) plan_.nodes.back().after.push_back(before);
    moved_.back() = {plan_.nodes.indices().back(), std::move(expansion.result)};
  }

  void expand_everywhere(PlanNode node) {
    for (Value& input : node.inputs)
      if (plan_.division(input).kind == Division::Kind::kPartial) input = gathered(input);
    expand(node, Sharding());
  }

  // Makes the inputs of a node that runs once whole.
  void gather_inputs(PlanNode& node) {
    if (node.op->metadata) return;  // it looks only at shapes
    for (Value& input : node.inputs)
      if (plan_.division(input)) input = gathered(input);
  }

  Value gathered(Value value) {
    const auto [made, fresh] = gathered_.emplace(value, Value{});
    if (!fresh) return made->second;
    const bool sums = plan_.division(value).kind == Division::Kind::kPartial;
    PlanNode node{sums ? &kSumShards : &kGatherShards, plan_.node(value.node).node, {}, {}, {}, {}};
    for (int s = 0; s < plan_.shards_per_device; ++s)
      node.inputs.push_back({value.node, value.index, s});
    node.types = {plan_.type(value)};
    node.devices = {plan_.device(value)};
    return made->second = {append(std::move(node), {Division()}), 0};
  }

  // The new place of a node of the old plan.
  struct Moved {
    NodeIndex node;
    std::vector<Value> outputs = {};  // if they are not the outputs of `node`

    Value output(int i) const { return outputs.empty() ? Value{node, i} : outputs[at(i)]; }
  };

  PlanGraph& plan_;
  const PlanContext& context_;
  Indexed<PlanNode, Moved> moved_;
  Indexed<PlanNode, std::vector<Division>> cut_;  // of all outputs, whole or in shards
  std::map<Value, Value> gathered_;
};

}  // namespace

void shards(PlanGraph& plan, const PlanContext& context) { ShardMaker(plan, context).run(); }

}  // namespace belfry
