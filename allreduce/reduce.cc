// How gradients are combined, from the table of the towers to the table of the results.
#include "belfry/allreduce/small_tensors.h"
#include "belfry/allreduce/strategy.h"
#include "belfry/allreduce/tower_weights.h"
#include "belfry/allreduce/verify/verify.h"
#include "belfry/framework/base/require.h"
#include "belfry/framework/graph/scopes.h"

namespace belfry {

GradientTable Strategy::reduce(const GradientTable& grads, const ReduceOptions& options,
                               At at) const {
  require_weights(grads, options, at.site);
  const bool several = grads.graph().process().size > 1;
  const bool alone = grads.towers() == 1 && !several, weighted = weights_matter(grads, options);
  if (alone && !weighted) return grads;
  const std::string why = alone     ? ""
                          : several ? refusal_of_processes(grads.devices())
                                    : refusal(grads.devices());
  require(why.empty(), several ? at.site.str() + ": " : "", why);
  const SiteScope site(grads.graph(), at.site);
  const bool mean = options.reduction == Reduction::kMean;
  verify_fresh(grads);
  if (mean) verify_mean(grads);
  const std::size_t first = grads.graph().size();
  TowerWeights weights(grads, options);
  GradientTable combined = weighted ? weights.applied() : grads;
  if (!alone) {
    OutputRows results = combine_packed(
        combined, *this, weighted ? Reduction::kSum : options.reduction, options.packing);
    if (weighted && mean) results = weights.means(grads.with(results));
    combined = verified(grads, results, first);
  }
  verify_rounded_once(grads.graph(), first);
  if (!alone) note_combined(grads, combined);
  return combined;
}

}  // namespace belfry
