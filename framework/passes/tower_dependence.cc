#include "belfry/framework/passes/tower_dependence.h"

#include <algorithm>
#include <set>

#include "belfry/framework/core_ops/fill.h"
#include "belfry/framework/core_ops/gather_shards.h"
#include "belfry/framework/passes/passes.h"

namespace belfry {
namespace {

class TowerDependence {
 public:
  TowerDependence(const PlanGraph& plan, const Indexed<PlanNode, std::vector<Division>>& divisions)
      : plan_(plan), divisions_(divisions), moves_(moving(plan)) {}

  // Notes all such nodes, and the first on the way to a variable.
  void note(PlanGraph& plan) const {
    for (const NodeIndex n : plan_.nodes.indices()) {
      const PlanNode& node = plan_.nodes[n];
      if (maker(*node.node).call == 0 || !depends(node, n)) continue;
      plan.tower_dependent.insert(node.node);
      if (moves_[n] && !plan.moved_by_towers) plan.moved_by_towers = node.node;
    }
  }

 private:
  // Whether no values of its inputs reach its outputs: it looks at shapes, or says of tensors
  // whether they are finite, as all are in a step that changes anything.
  static bool hides_values(const PlanNode& node) {
    const auto judges = [](const TensorType& type) {
      return type.dtype == DType::kBool && type.shape.rank() == 0;
    };
    return node.op->metadata || node.op == &kFillLike ||
           (!node.types.empty() && std::ranges::all_of(node.types, judges));
  }

  // Nodes from which a path leads to a write of a variable.
  static Indexed<PlanNode, char> moving(const PlanGraph& plan) {
    Indexed<PlanNode, char> result(plan.nodes.size());
    std::vector<NodeIndex> open;
    for (const NodeIndex n : plan.nodes.indices())
      if (plan.nodes[n].writes() > 0) open.push_back(n);
    while (!open.empty()) {
      const NodeIndex n = open.back();
      open.pop_back();
      if (std::exchange(result[n], 1)) continue;
      if (hides_values(plan.node(n))) continue;
      for (const Value& input : plan.node(n).inputs) open.push_back(input.node);
    }
    return result;
  }

  // The call and tower that a node belongs to, if any. A gradient belongs to those of its forward
  // node.
  struct Maker {
    int call = 0, replica = 0;
    auto operator<=>(const Maker&) const = default;
  };
  static Maker maker(const Node& node) {
    const Node& named = node.origin().forward ? *node.origin().forward : node;
    if (node.op().composite || named.op().composite) return {};  // of all towers
    return {named.origin().call, named.origin().replica};
  }

  static bool joins(const PlanNode& node) {
    return node.op == &kSumShards || node.op == &kGatherShards;
  }

  bool divided(NodeIndex n) const {
    return std::ranges::any_of(divisions_[n], [](const Division& d) { return bool(d); });
  }

  // Whether the node takes rows: they reveal the size of a tower's batch.
  bool takes_rows(const PlanNode& node) const {
    return std::ranges::any_of(node.inputs, [&](const Value& input) {
      return bool(divisions_[input.node][at(input.index)]);
    });
  }

  // Adds the towers whose whole batch the input depends on.
  void add_towers(Value input, bool divided_user, std::set<Maker>& towers) const {
    const PlanNode& from = plan_.node(input.node);
    const bool whole = joins(from) || (!divided_user && divisions_[input.node][at(input.index)]);
    if (whole && maker(*from.node).call != 0) towers.insert(maker(*from.node));
  }

  bool depends(const PlanNode& node, NodeIndex n) const {
    if (joins(node)) return is_half(node.types[0].dtype);  // rounded once for each tower
    if (node.op == &kFillLike) return false;
    if (node.op->metadata) return takes_rows(node);
    if (node.op->expand || (node.op->random && !divided(n))) return true;
    std::set<Maker> towers;
    for (const Value& input : node.inputs) add_towers(input, divided(n), towers);
    return towers.size() == 1;
  }

  const PlanGraph& plan_;
  const Indexed<PlanNode, std::vector<Division>>& divisions_;
  Indexed<PlanNode, char> moves_;
};

}  // namespace

void note_tower_dependence(PlanGraph& plan,
                           const Indexed<PlanNode, std::vector<Division>>& divisions) {
  if (plan.writes) TowerDependence(plan, divisions).note(plan);
}

}  // namespace belfry
