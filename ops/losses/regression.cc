#include "belfry/ops/losses/regression.h"

#include "belfry/framework/base/require.h"
#include "belfry/framework/graph/scopes.h"
#include "belfry/ops/operand.h"
#include "belfry/ops/pointwise/clip.h"
#include "belfry/ops/pointwise/sign.h"
#include "belfry/ops/square.h"

namespace belfry {

Output mse_loss(Output predictions, Output targets, PlainLossOptions options, At at) {
  widen_alike("mse_loss", predictions, targets, at.site);
  SiteScope site(predictions.graph(), at.site);
  return reduce_losses(square(predictions - targets), options.reduction, at);
}

Output l1_loss(Output predictions, Output targets, PlainLossOptions options, At at) {
  widen_alike("l1_loss", predictions, targets, at.site);
  SiteScope site(predictions.graph(), at.site);
  return reduce_losses(abs(predictions - targets), options.reduction, at);
}

// With q, the difference between the limits -delta and delta, this is q (d - q / 2).
Output huber_loss(Output predictions, Output targets, HuberOptions options, At at) {
  widen_alike("huber_loss", predictions, targets, at.site);
  SiteScope site(predictions.graph(), at.site);
  require(options.delta > 0, "huber_loss (built at ", predictions.graph().scopes().site_or(at.site),
          "): delta must be positive, not ", options.delta);
  const Output difference = predictions - targets;
  const Output near = clip(difference, -options.delta, options.delta);
  return reduce_losses(near * (difference - near * 0.5), options.reduction, at);
}

Output smooth_l1_loss(Output predictions, Output targets, SmoothL1Options options, At at) {
  widen_alike("smooth_l1_loss", predictions, targets, at.site);
  SiteScope site(predictions.graph(), at.site);
  require(options.beta >= 0, "smooth_l1_loss (built at ",
          predictions.graph().scopes().site_or(at.site), "): beta must not be negative, but is ",
          options.beta);
  if (options.beta == 0) return l1_loss(predictions, targets, {options.reduction}, at);
  const Output difference = predictions - targets;
  const Output near = clip(difference, -options.beta, options.beta);
  return reduce_losses(near * (difference - near * 0.5) * (1 / options.beta), options.reduction,
                       at);
}

}  // namespace belfry
