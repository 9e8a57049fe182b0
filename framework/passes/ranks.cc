#include <algorithm>
#include <map>
#include <utility>

#include "belfry/framework/base/require.h"
#include "belfry/framework/passes/passes.h"

namespace belfry {
namespace {

// One GPU of each process has a rank for messages.
bool sends_by_rank(const PlanNode& node, const PlanContext& context) {
  return node.op->exchange && context.device(node.device()).on_gpu();
}

// Replaces nodes by parts. It records the outputs and all parts of each expanded node for the nodes
// after it.
class RankSplitter {
 public:
  RankSplitter(PlanGraph& plan, const PlanContext& context) : plan_(plan), context_(context) {}

  void run() {
    const Indexed<PlanNode> before = std::exchange(plan_.nodes, {});
    parts_.resize(before.size());
    for (const NodeIndex n : before.indices()) {
      if (before[n].op->ranks) {
        split(n, before[n]);
        continue;
      }
      parts_[n].push_back(add(before[n]));
      PlanNode& node = plan_.nodes.back();
      for (Value& input : node.inputs) input = moved(input);
      if (sends_by_rank(node, context_))
        node.role = std::make_shared<const Rank>(Rank{.devices = {node.device()}});
    }
  }

 private:
  // A number that only the device's rank has. It stands for the memory space, or for the device if
  // NCCL serves several ranks there.
  int rank_of(int device) const {
    const Device& d = context_.device(device);
    return d.backend && d.backend->nccl().several_ranks ? device : -d.memory_space;
  }

  // The first device of the rank that a device belongs to.
  int rank_device(int device) const {
    for (int d = 0; d < device; ++d)
      if (rank_of(d) == rank_of(device)) return d;
    return device;
  }

  void split(NodeIndex n, const PlanNode& node) {
    const auto count = node.participants();
    std::vector<Rank> ranks;
    std::vector<int> devices;
    for (int t = 0; t < count; ++t) {
      const int device = rank_device(node.devices[at(t)]);
      const auto known = std::ranges::find(devices, device);
      const auto r = known - devices.begin();
      if (known == devices.end()) {
        devices.push_back(device);
        ranks.push_back({.number = static_cast<int>(r)});
      }
      ranks[at(r)].members.push_back(t);
    }
    for (Rank& rank : ranks) {
      rank.devices = devices;
      add_part(n, node, std::move(rank));
    }
  }

  void add_part(NodeIndex n, const PlanNode& whole, Rank rank) {
    const NodeIndex part = add({whole.op, whole.node, {}, whole.after, {}, {}});
    PlanNode& node = plan_.nodes.back();
    const std::size_t all = at(whole.participants());
    for (std::size_t first = 0; first < whole.inputs.size(); first += all)
      for (const int member : rank.members) {
        const std::size_t i = first + at(member);
        require(rank_device(whole.devices[i]) == rank.devices[at(rank.number)],
                whole.node->describe(), ": the tensors of participant ", member,
                " are on several GPUs; a rank has all of them on one");
        outputs_[{n, static_cast<int>(i)}] = {part, static_cast<int>(node.inputs.size())};
        node.inputs.push_back(moved(whole.inputs[i]));
        node.types.push_back(whole.types[i]);
        node.devices.push_back(whole.devices[i]);
      }
    node.role = std::make_shared<const Rank>(std::move(rank));
    parts_[n].push_back(part);
  }

  // Adds the node. Its control inputs become the parts of those nodes.
  NodeIndex add(PlanNode node) {
    std::vector<NodeIndex> after;
    for (const NodeIndex earlier : node.after)
      after.insert(after.end(), parts_[earlier].begin(), parts_[earlier].end());
    node.after = std::move(after);
    return plan_.nodes.add(std::move(node));
  }

  Value moved(Value value) const {
    const auto split = outputs_.find(value);
    return split != outputs_.end() ? split->second : Value{parts_[value.node].front(), value.index};
  }

  PlanGraph& plan_;
  const PlanContext& context_;
  NodeLists parts_;                 // by old node
  std::map<Value, Value> outputs_;  // old value -> new value, if its node was split
};

}  // namespace

void check_ranks(const PlanGraph& plan, const PlanContext& context) {
  for (const PlanNode& node : plan.nodes) {
    if (!node.op->ranks) continue;
    for (std::size_t i = 0; i < node.devices.size(); ++i) {
      const Device& device = context.device(node.devices[i]);
      require(device.on_gpu(), node.node->describe(), ": NCCL needs GPUs, but participant ",
              i % at(node.participants()), " is on ", device.spec, "; use collective");
    }
    const Device& first = context.device(node.device());
    const std::string why = first.backend ? first.backend->nccl().why_not : "";
    require<NotFoundError>(why.empty(), node.node->describe(), ": ", why, "; use collective");
  }
}

void split_ranks(PlanGraph& plan, const PlanContext& context) {
  const auto by_ranks = [&](const PlanNode& node) {
    return node.op->ranks || sends_by_rank(node, context);
  };
  if (std::ranges::any_of(plan.nodes, by_ranks)) RankSplitter(plan, context).run();
}

}  // namespace belfry
