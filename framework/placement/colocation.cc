#include "belfry/framework/placement/colocation.h"

#include "belfry/framework/base/text.h"

namespace belfry {

Colocation::Colocation(const Graph& graph, const PlacementContext& context)
    : context_(context),
      devices_(context),
      sets_(graph.size()),
      texts_(graph, context, devices_, sets_),
      joined_(join_nodes(graph, context, devices_, sets_)) {}

void Colocation::assign(int n, int device) {
  ColocationSet& bound = set(n);
  if (bound.decider >= 0 && bound.device == device) return;
  if (bound.decider < 0) bound.decider = n;
  if (!bound.tried) bound.tried = bound.requested;  // a variable with memory needs no candidates
  bound.device = device;
  bound.assigned = bound.requested = bound.resource = context_.device(device).spec;
}

const std::vector<int>& Colocation::candidates(int n) {
  ColocationSet& asking = set(n);
  if (asking.decider < 0) asking.tried = asking.requested;
  const std::vector<int>* found = &devices_.fitting(asking.requested, asking.types);
  if (found->empty() && context_.allow_soft_placement) found = &soften(n);
  return *found;
}

// Drops the requested type and index, except at first those of variables.
const std::vector<int>& Colocation::soften(int n) {
  ColocationSet& asking = set(n);
  const auto relaxed = [&](bool keep_variables) {
    DeviceSpec spec = asking.requested;
    if (!asking.assigned.type && !(keep_variables && asking.resource.type)) spec.type.reset();
    if (!asking.assigned.index && !(keep_variables && asking.resource.index)) spec.index.reset();
    return spec;
  };
  const std::vector<int>* found =
      &devices_.fitting(asking.tried.emplace(relaxed(true)), asking.types);
  if (found->empty()) {
    found = &devices_.fitting(asking.tried.emplace(relaxed(false)), asking.types);
    if (found->empty()) return *found;
  }
  asking.fallbacks.push_back(cat("no device is ", asking.requested,
                                 " and has kernels for all colocated nodes; soft placement "
                                 "dropped the type and the index"));
  return *found;
}

std::string Colocation::refusal(int n, int device) {
  const ColocationSet& asking = set(n);
  const DeviceSpec& spec = context_.device(device).spec;
  if (asking.tried && !asking.tried->matches(spec)) return cat("it is not ", *asking.tried);
  return (asking.types & devices_.type(device)) != 0 ? std::string()
                                                     : texts_.without_kernel_on(n, device);
}

void Colocation::refuse(int n) {
  if (const auto alone = joined_.alone.find(n); alone != joined_.alone.end())
    throw InvalidArgument(alone->second);
  if (!set(n).refusal.empty()) throw InvalidArgument(set(n).refusal);
  throw InvalidArgument(texts_.without_candidates(n));
}

}  // namespace belfry
