#include "belfry/ops/losses/overlap.h"

#include "belfry/framework/base/require.h"
#include "belfry/framework/graph/scopes.h"
#include "belfry/ops/operand.h"
#include "belfry/ops/pointwise/maximum.h"
#include "belfry/ops/reduce.h"
#include "belfry/ops/sqrt.h"
#include "belfry/ops/square.h"

namespace belfry {

Output dice_loss(Output predictions, Output targets, DiceOptions options, At at) {
  widen_alike("dice_loss", predictions, targets, at.site);
  SiteScope site(predictions.graph(), at.site);
  const std::size_t end = predictions.shape().rank() - (options.per_channel ? 1 : 0);
  require(predictions.shape().rank() > 0 && end > 1, "dice_loss (built at ",
          predictions.graph().scopes().site_or(at.site), "): needs samples with several elements",
          options.per_channel ? " of each channel" : "", ", but the shape is ",
          predictions.shape());
  std::vector<int> axes;
  for (std::size_t axis = 1; axis < end; ++axis) axes.push_back(static_cast<int>(axis));
  const auto sum = [&](Output x) { return reduce_sum(x, axes); };
  const Output ratio = (sum(predictions * targets) * 2.0 + options.smooth) /
                       (sum(predictions) + sum(targets) + options.smooth);
  return reduce_losses(1.0 - ratio, options.reduction, at);
}

Output cosine_similarity(Output a, Output b, CosineOptions options, At at) {
  widen_alike("cosine_similarity", a, b, at.site);
  SiteScope site(a.graph(), at.site);
  require(options.epsilon > 0, "cosine_similarity (built at ", a.graph().scopes().site_or(at.site),
          "): epsilon must be positive, not ", options.epsilon);
  const auto sum = [&](Output x) { return reduce_sum(x, {options.axis}); };
  // The smallest norm is heeded before the root, whose derivative at 0 is infinite.
  const auto norm = [&](Output x) {
    return sqrt(maximum(sum(square(x)), options.epsilon * options.epsilon));
  };
  return sum(a * b) / (norm(a) * norm(b));
}

}  // namespace belfry
