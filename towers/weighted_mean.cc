#include "belfry/towers/weighted_mean.h"

#include "belfry/framework/base/require.h"
#include "belfry/framework/core_ops/constant.h"
#include "belfry/ops/losses/loss_reduction.h"
#include "belfry/ops/normalization/batch_statistics.h"
#include "belfry/ops/operand.h"
#include "belfry/ops/reduce.h"
#include "belfry/ops/reshape.h"
#include "belfry/ops/stop_gradient.h"

namespace belfry {
namespace {

// The mean of all weights over the batches of all towers, [1]. Rows and their mean add up exactly
// along the canonical tree, as those of batch norm do.
Output mean_of_all_towers(Tower& tower, Output weights, At at) {
  const Output parts[] = {reshape(stop_gradient(weights), {kUnknownSize, 1}),
                          constant(tower.graph(), 1.0, weights.dtype(), At("weight", at.site))};
  if (!tower.links().has_peers())
    return tower.graph().add(kBatchStatistics, parts, at.site).output(0);
  return tower.links().join(kBatchStatistics, parts, "a weighted mean", at.site).output(0);
}

// Means of all towers of `terms`, whose sum is divided by that of weights.
Output mean_of_terms(Tower& tower, Output terms, Output weights, At at) {
  if (!tower.is_training()) return reduce_mean(terms, {}, at);
  return reduce_mean(terms / mean_of_all_towers(tower, weights, at), {}, at);
}

}  // namespace

Output weighted_mean(Tower& tower, Output values, Output weights, At at) {
  widen_alike("weighted_mean", values, weights, at.site);
  require(values.shape().rank() > 0, "weighted_mean (built at ", at.site, "): needs samples");
  SiteScope site(tower.graph(), at.site);
  return mean_of_terms(tower, values * stop_gradient(weights), weights, at);
}

Output cross_entropy(Tower& tower, Output logits, Output labels,
                     WeightedCrossEntropyOptions options, At at) {
  SiteScope site(tower.graph(), at.site);
  const Output weights = label_weights(logits, labels, options, at);
  return mean_of_terms(tower, weighted_cross_entropy(logits, labels, options, at), weights, at);
}

}  // namespace belfry
