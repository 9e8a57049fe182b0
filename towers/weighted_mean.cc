#include "belfry/towers/weighted_mean.h"

#include "belfry/framework/base/require.h"
#include "belfry/framework/core_ops/constant.h"
#include "belfry/framework/graph/scopes.h"
#include "belfry/ops/losses/loss_reduction.h"
#include "belfry/ops/normalization/batch_statistics.h"
#include "belfry/ops/operand.h"
#include "belfry/ops/reduce.h"
#include "belfry/ops/reshape.h"
#include "belfry/ops/stop_gradient.h"
#include "belfry/towers/metrics.h"

namespace belfry {
namespace {

// The mean [c] of rows [n, c] over the batches of all towers. Rows and their mean add up exactly
// along the canonical tree, as those of batch norm do.
Output mean_of_all_towers(Tower& tower, Output rows, std::string_view what, At at) {
  const Output parts[] = {rows, constant(tower.graph(), 1.0, rows.dtype(), At("weight", at.site))};
  if (!tower.links().has_peers())
    return tower.graph().add(kBatchStatistics, parts, at.site).output(0);
  return tower.links().join(kBatchStatistics, parts, what, at.site).output(0);
}

// The sum of `terms` over that of weights, over all towers.
Output mean_of_terms(Tower& tower, Output terms, Output weights, At at) {
  const Output weight = mean_of_all_towers(
      tower, reshape(stop_gradient(weights), {kUnknownSize, 1}), "a weighted mean", at);
  const Output mean = reduce_mean(terms / weight, {}, at);
  if (!tower.is_training())
    tower.links().record(WeightedSums{mean, metrics::ratio(terms, weights, at).sums});
  return mean;
}

}  // namespace

Output weighted_mean(Tower& tower, Output values, Output weights, At at) {
  widen_alike("weighted_mean", values, weights, at.site);
  require(values.shape().rank() > 0, "weighted_mean (built at ", at.site, "): needs samples");
  SiteScope site(tower.graph(), at.site);
  return mean_of_terms(tower, values * stop_gradient(weights), weights, at);
}

Output batch_mean(Tower& tower, Output x, At at) {
  const std::vector<std::int64_t> dims = x.shape().dims();
  require(!dims.empty(), "batch_mean (built at ", tower.graph().scopes().site_or(at.site),
          "): takes samples [n, ...], not ", x.type());
  const Shape sample(std::vector<std::int64_t>(dims.begin() + 1, dims.end()));
  require(sample.is_fully_known(), "batch_mean (built at ", tower.graph().scopes().site_or(at.site),
          "): all dimensions of ", x.type(), " but the first must be known");
  SiteScope site(tower.graph(), at.site);
  const Output rows = reshape(widened(x, at.site), {kUnknownSize, sample.elements()});
  return reshape(mean_of_all_towers(tower, rows, "a mean over samples", at), sample, at);
}

Output cross_entropy(Tower& tower, Output logits, Output labels,
                     WeightedCrossEntropyOptions options, At at) {
  SiteScope site(tower.graph(), at.site);
  const Output weights = label_weights(logits, labels, options, at);
  return mean_of_terms(tower, weighted_cross_entropy(logits, labels, options, at), weights, at);
}

}  // namespace belfry
