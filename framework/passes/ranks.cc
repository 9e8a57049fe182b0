#include <algorithm>
#include <map>

#include "belfry/framework/passes/passes.h"

namespace belfry {
namespace {

// Of the nodes behind an expanded one: where its outputs are, and all its parts.
class RankSplitter {
 public:
  RankSplitter(PlanGraph& plan, const PlanContext& context) : plan_(plan), context_(context) {}

  void run() {
    const std::vector<PlanNode> before = std::move(plan_.nodes);
    plan_.nodes.clear();
    for (const PlanNode& node : before) {
      std::vector<int>& parts = parts_.emplace_back();
      const auto n = static_cast<int>(parts_.size()) - 1;
      if (node.op->ranks) {
        split(n, node);
        continue;
      }
      parts.push_back(add(node));
      for (Value& input : plan_.nodes.back().inputs) input = moved(input);
    }
  }

 private:
  // The memory that a rank is for, as a number that only it has.
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

  void split(int n, const PlanNode& node) {
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

  void add_part(int n, const PlanNode& whole, Rank rank) {
    const int part = add({whole.op, whole.node, {}, whole.after, {}, {}});
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
    parts_[at(n)].push_back(part);
  }

  // With what it comes after, as it is now.
  int add(PlanNode node) {
    std::vector<int> after;
    for (const int earlier : node.after)
      after.insert(after.end(), parts_[at(earlier)].begin(), parts_[at(earlier)].end());
    node.after = std::move(after);
    plan_.nodes.push_back(std::move(node));
    return static_cast<int>(plan_.nodes.size()) - 1;
  }

  Value moved(Value value) const {
    const auto split = outputs_.find(value);
    return split != outputs_.end() ? split->second
                                   : Value{parts_[at(value.node)].front(), value.index};
  }

  PlanGraph& plan_;
  const PlanContext& context_;
  std::vector<std::vector<int>> parts_;  // by old node
  std::map<Value, Value> outputs_;       // of what was split
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
    require<NotFound>(why.empty(), node.node->describe(), ": ", why, "; use collective");
  }
}

void split_ranks(PlanGraph& plan, const PlanContext& context) {
  const auto by_ranks = [](const PlanNode& node) { return node.op->ranks; };
  if (std::ranges::any_of(plan.nodes, by_ranks)) RankSplitter(plan, context).run();
}

}  // namespace belfry
