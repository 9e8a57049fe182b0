// Cuts the work of each device into the shards of its batch. Feeds of samples are cut by rows. From
// there every op says by its rule (framework/graph/shards.h) what becomes of its outputs. Nodes
// that cannot be divided get their inputs whole: from a GatherShards, or from a SumShards, which
// adds the partial sums of all shards along the canonical tree.
//
// Results depend on the shards alone: a kernel sees the rows of one shard, whichever device has it.
#include <map>
#include <utility>

#include "belfry/framework/core_ops/gather_shards.h"
#include "belfry/framework/passes/passes.h"

namespace belfry {
namespace {

class ShardMaker {
 public:
  ShardMaker(PlanGraph& plan, const PlanContext& context) : plan_(plan), context_(context) {}

  void run() {
    find_batches();
    if (plan_.batches.empty()) return;
    const std::size_t nodes = plan_.nodes.size();
    cut_.resize(nodes);
    for (std::size_t n = 0; n < nodes; ++n) visit(static_cast<int>(n));
    if (plan_.nodes.size() > nodes) sort_nodes(plan_);
  }

 private:
  void find_batches() {
    for (const PlanNode& node : plan_.nodes) {
      if (node.feed() < 0 || !plan_.feeds[at(node.feed())].first_sample) continue;
      if (context_.device(node.device()).on_gpu() && context_.shards > 1) continue;
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
    plan_.shards = plan_.locks == Locks::kEachVariable ? 1 : context_.shards;
  }

  void visit(int n) {
    PlanNode& node = plan_.nodes[at(n)];
    cut_[at(n)].resize(node.types.size());
    const DeviceBatch& batch = plan_.batches[at(node.device())];
    if (batch.samples == 0) return gather_inputs(n);
    if (node.feed() >= 0) {
      if (plan_.feeds[at(node.feed())].first_sample) cut_[at(n)] = {Division::by_rows(1)};
      return;
    }
    const Sharding sharding = ask(node, batch.samples);
    if (!sharding.divides()) return gather_inputs(n);
    cut_[at(n)] = sharding.outputs;
    if (sharding.outputs.empty() || sharding.outputs[0].kind == Division::Kind::kRows)
      node.rows = sharding.outputs.empty() ? 0 : sharding.outputs[0].rows;
    // What lies whole, such as a feed, stays so under other names.
    if (plan_.shards > 1 && !(node.op->alias && !plan_.division(node.inputs[0])))
      node.sharding = sharding;
  }

  Sharding ask(const PlanNode& node, std::int64_t samples) const {
    const bool plain = std::holds_alternative<std::monostate>(node.role);
    if (!plain || !node.op->shards || node.writes() > 0) return {};
    std::vector<Division> divisions;
    for (const Value& input : node.inputs) {
      if (plan_.device(input) != node.device() && cut_at(input)) return {};
      divisions.push_back(cut_at(input));
    }
    const std::vector<TensorType> inputs = plan_.input_types(node);
    return node.op->shards({*node.node, inputs, node.types, divisions, samples});
  }

  const Division& cut_at(Value value) const { return cut_[at(value.node)][at(value.index)]; }

  // Of a node that runs once.
  void gather_inputs(int n) {
    if (plan_.nodes[at(n)].op->metadata) return;  // it looks at shapes alone
    for (std::size_t i = 0; i < plan_.nodes[at(n)].inputs.size(); ++i) {
      const Value value = plan_.nodes[at(n)].inputs[i];
      if (plan_.division(value)) plan_.nodes[at(n)].inputs[i] = gathered(value);
    }
  }

  Value gathered(Value value) {
    const auto [made, fresh] = gathered_.emplace(value, Value{});
    if (!fresh) return made->second;
    const bool sums = plan_.division(value).kind == Division::Kind::kPartial;
    PlanNode node{sums ? &kSumShards : &kGatherShards, plan_.node(value.node).node, {}, {}, {}, {}};
    for (int s = 0; s < plan_.shards; ++s) node.inputs.push_back({value.node, value.index, s});
    node.types = {plan_.type(value)};
    node.devices = {plan_.device(value)};
    made->second = {static_cast<int>(plan_.nodes.size()), 0};
    plan_.nodes.push_back(std::move(node));
    cut_.emplace_back(1);
    return made->second;
  }

  PlanGraph& plan_;
  const PlanContext& context_;
  std::vector<std::vector<Division>> cut_;  // by node: its outputs, wherever they lie
  std::map<Value, Value> gathered_;
};

}  // namespace

void shards(PlanGraph& plan, const PlanContext& context) { ShardMaker(plan, context).run(); }

}  // namespace belfry
