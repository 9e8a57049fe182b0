#include "belfry/ops/losses/classification.h"

#include "belfry/framework/base/require.h"
#include "belfry/framework/core_ops/constant.h"
#include "belfry/framework/core_ops/fill.h"
#include "belfry/framework/graph/scopes.h"
#include "belfry/ops/exp.h"
#include "belfry/ops/log.h"
#include "belfry/ops/losses/class_weights.h"
#include "belfry/ops/operand.h"
#include "belfry/ops/pointwise/log_softmax.h"
#include "belfry/ops/pointwise/maximum.h"
#include "belfry/ops/pointwise/power.h"
#include "belfry/ops/reduce.h"
#include "belfry/ops/relu.h"
#include "belfry/ops/sigmoid.h"
#include "belfry/ops/sigmoid_cross_entropy.h"

namespace belfry {

Output hinge_loss(Output predictions, Output targets, PlainLossOptions options, At at) {
  widen_alike("hinge_loss", predictions, targets, at.site);
  SiteScope site(predictions.graph(), at.site);
  return reduce_losses(relu(1.0 - targets * predictions), options.reduction, at);
}

Output softmax_cross_entropy(Output logits, Output targets, PlainLossOptions options, At at) {
  widen_alike("softmax_cross_entropy", logits, targets, at.site);
  SiteScope site(logits.graph(), at.site);
  return reduce_losses(-reduce_sum(targets * log_softmax(logits), {-1}), options.reduction, at);
}

// The loss of ones alone is that of targets 1.
Output binary_cross_entropy_with_logits(Output logits, Output targets,
                                        BinaryCrossEntropyOptions options, At at) {
  widen_alike("binary_cross_entropy_with_logits", logits, targets, at.site);
  SiteScope site(logits.graph(), at.site);
  const Output losses = sigmoid_cross_entropy(logits, targets);
  if (options.pos_weight.empty()) return reduce_losses(losses, options.reduction, at);
  const auto count = static_cast<std::int64_t>(options.pos_weight.size());
  const Shape& shape = logits.shape();
  require(count == 1 || (shape.rank() > 0 && count == shape.back()),
          "binary_cross_entropy_with_logits (built at ", logits.graph().scopes().site_or(at.site),
          "): pos_weight has ", count, " numbers for logits ", shape,
          "; give one, or one for each element of the last axis");
  std::vector<double> more;
  for (const double weight : options.pos_weight) more.push_back(weight - 1);
  const Output of_ones = targets * sigmoid_cross_entropy(logits, fill_like(logits, 1));
  const Output extra = count == 1 ? of_ones * more[0]
                                  : of_ones * constant_vector(logits.graph(), more, logits.dtype());
  return reduce_losses(losses + extra, options.reduction, at);
}

// 1 - p = t sigmoid(-x) + (1 - t) sigmoid(x), which loses no digits where p is near 1.
Output sigmoid_focal_loss(Output logits, Output targets, FocalOptions options, At at) {
  widen_alike("sigmoid_focal_loss", logits, targets, at.site);
  SiteScope site(logits.graph(), at.site);
  require(options.gamma >= 0 && options.alpha <= 1, "sigmoid_focal_loss (built at ",
          logits.graph().scopes().site_or(at.site),
          "): gamma must not be negative and alpha be at most 1, but they are ", options.gamma,
          " and ", options.alpha);
  const Output zeros = 1.0 - targets;
  const Output missed = targets * sigmoid(-logits) + zeros * sigmoid(logits);
  const Output losses = sigmoid_cross_entropy(logits, targets) * pow(missed, options.gamma);
  if (options.alpha < 0) return reduce_losses(losses, options.reduction, at);
  const Output weights = targets * options.alpha + zeros * (1 - options.alpha);
  return reduce_losses(weights * losses, options.reduction, at);
}

namespace {

// The smallest normal number of f32: no other probability is raised to it.
constexpr double kLeastProbability = 0x1p-126;

}  // namespace

Output kl_div(Output log_probabilities, Output targets, KlOptions options, At at) {
  widen_alike("kl_div", log_probabilities, targets, at.site);
  SiteScope site(log_probabilities.graph(), at.site);
  const Output losses =
      options.log_target ? exp(targets) * (targets - log_probabilities)
                         : targets * (log(maximum(targets, kLeastProbability)) - log_probabilities);
  return reduce_losses(losses, options.reduction, at);
}

}  // namespace belfry
