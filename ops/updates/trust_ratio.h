// TrustRatio: by what LAMB scales the update of a tensor (You et al. 2020).
#pragma once
#include "belfry/framework/graph/graph.h"

namespace belfry {

// The norms of a variable and of its update (f64 scalars), and perhaps a factor (f32 scalar) -> f32
// scalar: variable / update, and 1 where one of the norms is 0. Where the factor is 0 so is the
// result, and only there: an update that is skipped (ScaledGradient).
extern const Op kTrustRatio;
Output trust_ratio(Output variable_norm, Output update_norm, Output factor = {}, At at = {});

}  // namespace belfry
