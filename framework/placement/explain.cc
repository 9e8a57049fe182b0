#include "belfry/framework/placement/explain.h"

#include <algorithm>

#include "belfry/framework/base/text.h"
#include "belfry/framework/core_ops/gather_shards.h"
#include "belfry/framework/graph/graph.h"
#include "belfry/framework/placement/placer.h"
#include "belfry/framework/plan/fused_update.h"

namespace belfry {
namespace {

class Explainer {
 public:
  explicit Explainer(const Placement& placement)
      : graph_(placement.graph()),
        context_(placement.context()),
        placer_(placement.graph(), placement.context()) {}

  void explain(const Output& output, int chosen, Explanation& result) {
    const int n = output.node().id();
    result.device = context_.device(chosen).spec.str();
    Colocation& groups = placer_.colocation();
    result.colocation.clear();
    for (const int member : groups.members(n))
      if (member != n) result.colocation.push_back(name(member));
    for (const ColocationJoin& join : groups.joins())
      if (&groups.set(join.pulled) == &groups.set(n))
        result.pulls.push_back(
            {name(join.puller), name(join.pulled),
             join.group.empty() ? "reference edge" : cat("colocation group ", join.group)});
    for (std::size_t d = 0; d < context_.devices.size(); ++d)
      result.candidates.push_back(candidate(n, static_cast<int>(d), chosen));
    result.fallback = join(groups.set(n).fallbacks, "; ");
  }

 private:
  Explanation::Candidate candidate(int n, int device, int chosen) {
    const bool collective = graph_.node(at(n)).op().collective;
    const std::string refusal =
        collective ? std::string() : placer_.colocation().refusal(n, device);
    std::string reason = refusal;
    if (device == chosen)
      reason = chosen_reason(n);
    else if (collective)
      reason = placer_.reason(n);
    else if (refusal.empty())
      reason = cat("it would do, but ", context_.device(chosen).spec, " was chosen");
    const bool kept = device == chosen || (!collective && refusal.empty());
    return {context_.device(device).spec.str(), kept, reason};
  }

  std::string chosen_reason(int n) {
    const int decider = placer_.colocation().set(n).decider;
    if (decider == n || decider < 0 || graph_.node(at(n)).op().collective)
      return std::string(placer_.reason(n));
    return cat("chosen for '", name(decider),
               "', with which it is colocated: ", placer_.reason(decider));
  }

  std::string name(int n) const { return std::string(graph_.node(at(n)).name()); }

  const Graph& graph_;
  const PlacementContext& context_;
  Placer placer_;
};

std::string shown_division(const Division& division) {
  if (division.kind == Division::Kind::kPartial) return "partial sums";
  if (!division) return "whole";
  return cat(division.rows, division.rows == 1 ? " row" : " rows", " of each sample");
}

// Names of the nodes that take a value whole.
std::vector<std::string> users_of(Value value, const PlanGraph& plan) {
  std::vector<std::string> users;
  for (const PlanNode& user : plan.nodes)
    if (std::ranges::find(user.inputs, value) != user.inputs.end()) users.push_back(user.name());
  return users;
}

// Whether a fused update has this node of the graph in its body. A member that adds up the node's
// shards has another op, and does not count.
bool has_in_body(const PlanNode& planned, const Node& node) {
  return planned.fused_update() &&
         std::ranges::any_of(planned.fused_update()->body, [&](const FusedUpdate::Member& member) {
           return member.node == &node && member.op == &node.op();
         });
}

// The plan node that does the work of a node of the graph, or none.
NodeIndex node_that_runs(const Node& node, const PlanGraph& plan) {
  const auto fused = plan.fused_into.find(&node);
  if (fused == plan.fused_into.end()) {
    for (const NodeIndex n : plan.nodes.indices())
      if (has_in_body(plan.node(n), node)) return n;
    return plan.find(node);
  }
  for (const NodeIndex n : plan.nodes.indices())
    if (plan.node(n).op == fused->second.op && plan.node(n).node == fused->second.node) return n;
  return {};
}

}  // namespace

void explain_step(const Node& node, const PlanGraph& plan, Explanation& result) {
  const NodeIndex n = node_that_runs(node, plan);
  if (!n) return;
  const PlanNode& planned = plan.node(n);
  if (planned.op != &node.op()) result.fused_into = cat(planned.op->name, " ", planned.name());
  result.shards = plan.batches.empty() ? 1 : plan.shards_per_device;
  result.runs = plan.runs(planned);
  for (std::size_t i = 0; i < planned.types.size(); ++i)
    result.outputs.push_back(
        {planned.types[i].str(), shown_division(planned.division(static_cast<int>(i))), {}});
  for (const NodeIndex u : plan.nodes.indices()) {
    const PlanNode& user = plan.node(u);
    const bool copies = user.op == &kSumShards || user.op == &kGatherShards;
    for (const Value& input : user.inputs) {
      if (input.node != n || input.shard > 0 || (!copies && input.shard == Value::kOwn)) continue;
      if (copies)
        result.copies.push_back({user.name(), user.types[0].bytes(), users_of({u, 0}, plan)});
      else
        result.outputs[at(input.index)].added_by.push_back(user.name());
    }
  }
}

Explanation explain_placement(const Output& output, const Placement& placement) {
  Explanation result = output.graph().explain(output);
  Explainer(placement).explain(output, placement.device(output), result);
  return result;
}

}  // namespace belfry
