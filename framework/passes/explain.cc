#include "belfry/framework/passes/explain.h"

#include "belfry/framework/base/text.h"
#include "belfry/framework/graph/graph.h"
#include "belfry/framework/passes/placer.h"

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

}  // namespace

Explanation explain_placement(const Output& output, const Placement& placement) {
  Explanation result = output.graph().explain(output);
  Explainer(placement).explain(output, placement.device(output), result);
  return result;
}

}  // namespace belfry
