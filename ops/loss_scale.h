// Loss scaling: f16 gradients are taken of the loss times a scale, so that small ones do not
// underflow. An update divides by the scale again, or is skipped if a gradient is not finite.
//
//   Unscaling by = unscale(scale, {all_finite(tower0), all_finite(tower1)});
//   sgd_update(v, {gradient, by.factor}, rate);
//   update_loss_scale(scale, good_steps, by.applied);
#pragma once
#include "belfry/framework/graph/graph.h"
#include "belfry/ops/scaled_gradient.h"

namespace belfry {

// `scale` is a scalar f32, `finite` are bool scalars.
extern const Op kUnscale;
Unscaling unscale(Output scale, std::span<const Output> finite, At at = {});

struct LossScaleUpdateOptions {
  std::int64_t growth_steps = 1000;  // at least 1
};

// The rule, where `applied` is a scalar i64, 1 for an applied update and 0 for a skipped one:
//   skipped: scale /= 2, good_steps = 0
//   applied: good_steps += 1; at growth_steps of them: scale *= 2, good_steps = 0
// The scale, a scalar f32, stays between 2^-126 and 2^126, so that it and its inverse are exact.
// The count is a scalar, i64. Outputs are their new values.
extern const Op kLossScaleUpdate;
Node& update_loss_scale(Variable scale, Variable good_steps, Output applied,
                        LossScaleUpdateOptions options = {}, At at = {});

}  // namespace belfry
