// Clipping of gradients by the norm of all of them (ops/updates/global_norm.h), or one by one.
#pragma once
#include "belfry/allreduce/verify/gradient_table.h"
#include "belfry/ops/scaled_gradient.h"

namespace belfry {

// Returns the factor by which updates multiply combined gradients, so that their norm over all
// variables is at most max_norm: `unscaling` with a smaller factor, the same for all towers;
// `unscaling` unchanged for a max_norm of 0. The norm is that of gradients after `unscaling`.
// Towers with separate variables share the work. Because the factor needs all sums, no update is
// fused with the sum of its gradient.
Unscaling clipped(const GradientTable& combined, double max_norm, const Unscaling& unscaling);
// The same for a given norm: an f64 scalar, of gradients before `unscaling`.
Unscaling clipped_by(Output norm, double max_norm, const Unscaling& unscaling);

// Replaces the gradients of each row by min(max(factor * g, -most), most), each where it is; NaN
// stays. Returns what is left of `unscaling`: whether the update is skipped. `device`: where the
// factor is made. No update is fused with the sum of a gradient that this replaces.
Unscaling clip_values(GradientRows& rows, double most, const Unscaling& unscaling,
                      const DeviceSpec& device);

}  // namespace belfry
