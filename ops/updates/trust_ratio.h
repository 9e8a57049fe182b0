// TrustRatio: the factor by which LAMB scales the update of a tensor (You et al. 2020).
#pragma once
#include "belfry/framework/graph/graph.h"

namespace belfry {

// The norms of a variable and of its update (f64 scalars), and perhaps a factor (f32 scalar) -> f32
// scalar: the norm of the variable over that of the update, or 1 if either is 0. The result is 0,
// which skips the update (ScaledGradient), if and only if the factor is.
extern const Op kTrustRatio;
Output trust_ratio(Output variable_norm, Output update_norm, Output factor = {}, At at = {});

}  // namespace belfry
