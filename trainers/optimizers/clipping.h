// Clipping of gradients by the norm of all of them (ops/updates/global_norm.h).
#pragma once
#include "belfry/ops/scaled_gradient.h"

namespace belfry {

class GradientTable;

// Returns the factor by which updates multiply combined gradients, so that their norm over all
// variables is at most max_norm: `unscaling` with a smaller factor, the same for all towers;
// `unscaling` unchanged for a max_norm of 0. The norm is that of gradients after `unscaling`.
// Towers with separate variables share the work. Because the factor needs all sums, no update is
// fused with the sum of its gradient.
Unscaling clipped(const GradientTable& combined, double max_norm, const Unscaling& unscaling);
// The same for a given norm: an f64 scalar, of gradients before `unscaling`.
Unscaling clipped_by(Output norm, double max_norm, const Unscaling& unscaling);

}  // namespace belfry
