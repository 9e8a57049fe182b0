// Norms of gradients (ops/updates/global_norm.h), and clipping by the norm of all of them, or one
// by one.
#pragma once
#include <span>
#include <string>
#include <vector>

#include "belfry/allreduce/verify/gradient_table.h"
#include "belfry/ops/scaled_gradient.h"

namespace belfry {

// The squares of combined gradients, before they are clipped.
struct GradientSquares {
  std::vector<std::string> variables;  // logical names of those that have a gradient
  // Each is a vector f64 [variables]; added up, they have the sum of squares of each gradient.
  std::vector<Output> sums;
};

// Towers with separate variables share the work. No update is fused with the sum of a gradient.
GradientSquares squares_of(const GradientTable& combined);

// Returns the factor by which updates multiply combined gradients, so that their norm over all
// variables is at most max_norm: `unscaling` with a smaller factor, the same for all towers. The
// norm is that of gradients after `unscaling`, and `sums` are of those before it
// (GradientSquares::sums). `device`: where the factor is made.
Unscaling clipped(std::span<const Output> sums, double max_norm, const Unscaling& unscaling,
                  const DeviceSpec& device);

// Replaces the gradients of each row by min(max(factor * g, -most), most), each where it is; NaN
// stays. Returns what is left of `unscaling`: whether the update is skipped. `device`: where the
// factor is made. No update is fused with the sum of a gradient that this replaces.
Unscaling clip_values(GradientRows& rows, double most, const Unscaling& unscaling,
                      const DeviceSpec& device);

}  // namespace belfry
