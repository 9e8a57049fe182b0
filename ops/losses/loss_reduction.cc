#include "belfry/ops/losses/loss_reduction.h"

#include "belfry/framework/base/require.h"
#include "belfry/framework/graph/scopes.h"
#include "belfry/ops/cast.h"
#include "belfry/ops/reduce.h"

namespace belfry {

Output reduce_losses(Output losses, LossReduction reduction, At at) {
  if (reduction == LossReduction::kNone) return losses;
  std::vector<int> axes;
  for (std::size_t axis = 1; axis < losses.shape().rank(); ++axis)
    axes.push_back(static_cast<int>(axis));
  if (reduction == LossReduction::kMean || axes.empty()) return reduce_mean(losses, {}, at);
  return reduce_mean(reduce_sum(losses, axes, At(at.site)), {}, at);
}

Output widened(Output x, SourceLine site) {
  return is_half(x.dtype()) ? cast(x, DType::kF32, site) : x;
}

void widen_alike(const char* loss, Output& predictions, Output& targets, SourceLine site) {
  predictions = widened(predictions, site);
  targets = widened(targets, site);
  const Shape &p = predictions.shape(), &t = targets.shape();
  require(p.compatible(t), loss, " (built at ", predictions.graph().scopes().site_or(site),
          "): predictions have shape ", p, " and targets ", t,
          ", but need one shape; reshape(targets, ", p,
          ") if they have the same elements in the same order");
  require(predictions.dtype() == targets.dtype(), loss, " (built at ",
          predictions.graph().scopes().site_or(site), "): predictions are ",
          name_of(predictions.dtype()), " and targets ", name_of(targets.dtype()),
          "; cast the targets");
}

}  // namespace belfry
