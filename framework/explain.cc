#include "belfry/framework/explain.h"

#include <algorithm>
#include <set>

#include "belfry/framework/core_ops/placeholder.h"
#include "belfry/framework/graph.h"
#include "belfry/framework/numeric_order.h"
#include "belfry/framework/passes/passes.h"
#include "belfry/framework/passes/placer.h"

namespace belfry {
namespace {

// So that a node can be planned alone. Placement does not depend on shapes, so 1 stands for
// dimensions that are unknown.
std::vector<FeedType> placeholders_before(const Node& node) {
  std::vector<FeedType> feeds;
  std::set<const Node*> seen{&node};
  std::vector<const Node*> open{&node};
  while (!open.empty()) {
    const Node& current = *open.back();
    open.pop_back();
    if (&current.op() == &kPlaceholder) {
      std::vector<std::int64_t> dims = current.output_type(0).shape.dims();
      std::ranges::replace(dims, kUnknown, std::int64_t{1});
      feeds.push_back({current.output(), Shape(std::move(dims))});
    }
    for (const Output& input : current.inputs())
      if (seen.insert(&input.node()).second) open.push_back(&input.node());
    for (const Node* before : current.control_inputs())
      if (seen.insert(before).second) open.push_back(before);
  }
  return feeds;
}

class Explainer {
 public:
  Explainer(Plan& plan, const PlanContext& context)
      : plan_(plan), context_(context), placer_(plan, context) {
    placer_.run();
  }

  void explain(const Output& output, Explanation& result) {
    const int n = plan_.find(output.node());
    require<Internal>(n >= 0, output.node().describe(), " is not in its own plan");
    const PlanNode& planned = plan_.node(n);
    const auto index = at(output.index());
    const int device = planned.devices[index < planned.devices.size() ? index : 0];
    result.device = context_.device(device).spec.str();
    Colocation& groups = placer_.colocation();
    result.colocation.clear();
    for (const int member : groups.members(n))
      if (member != n) result.colocation.emplace_back(plan_.node(member).node->name());
    for (const Colocation::Join& join : groups.joins())
      if (&groups.set(join.pulled) == &groups.set(n))
        result.pulls.push_back(
            {name(join.puller), name(join.pulled),
             join.group.empty() ? "reference edge" : cat("colocation group ", join.group)});
    for (std::size_t d = 0; d < context_.devices.size(); ++d)
      result.candidates.push_back(candidate(n, static_cast<int>(d), device));
    result.fallback = join(groups.set(n).fallbacks, "; ");
  }

 private:
  Explanation::Candidate candidate(int n, int device, int chosen) {
    const bool collective = plan_.node(n).op->collective;
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
    if (decider == n || decider < 0 || plan_.node(n).op->collective)
      return std::string(placer_.reason(n));
    return cat("chosen for '", name(decider),
               "', with which it is colocated: ", placer_.reason(decider));
  }

  std::string name(int n) const { return std::string(plan_.node(n).node->name()); }

  Plan& plan_;
  const PlanContext& context_;
  Placer placer_;
};

}  // namespace

Explanation Graph::explain(const Output& output) const {
  const Node& node = output.node();
  require(&node.graph() == this, node.describe(), ": belongs to another graph");
  Explanation result;
  result.node = node.name();
  result.type = node.type();
  result.requested = node.device().str();
  for (const DeviceReason& reason : node.device_reasons()) {
    result.scopes.push_back(
        {std::string(reason.site.file_name()), static_cast<int>(reason.site.line), reason.what});
    if (!reason.load.empty()) result.load = reason.load;
  }
  result.colocation.assign(node.colocation().begin(), node.colocation().end());
  return result;
}

Explanation explain_placement(const Output& output, std::span<const Fetch> fetches,
                              std::span<const FeedType> feeds, const PlanContext& context) {
  Explanation result = output.graph().explain(output);
  const Fetch itself(output.node());
  Plan plan;
  if (fetches.empty())
    prune(plan, {&itself, 1}, placeholders_before(output.node()));
  else
    prune(plan, fetches, feeds);
  Explainer(plan, context).explain(output, result);
  return result;
}

std::string Explanation::str() const {
  std::string text = cat(node, ": (", type, ")\n");
  if (!device.empty()) text += cat("  device: ", device, "\n");
  text += cat("  requested: ", requested.empty() ? "any device" : requested, "\n");
  for (const Scope& scope : scopes)
    text += cat("    ", scope.what, " at ", scope.file, ":", scope.line, "\n");
  for (const auto& [name, elements] : in_numeric_order(load))
    text += cat("    load then: ", name, " ", elements, " elements\n");
  if (!colocation.empty()) text += cat("  colocated with: ", join(colocation), "\n");
  for (const Pull& pull : pulls)
    text += cat("    ", pull.who, " pulled ", pull.whom, ": ", pull.why, "\n");
  for (const Candidate& candidate : candidates)
    text += cat(candidate.device == device ? "  * "
                : candidate.kept           ? "  + "
                                           : "  - ",
                candidate.device, ": ", candidate.reason, "\n");
  if (!fallback.empty()) text += cat("  soft placement: ", fallback, "\n");
  return text;
}

}  // namespace belfry
