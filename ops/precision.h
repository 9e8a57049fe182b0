// Mixed precision: the types in which a model with f32 variables computes.
//
//   const AutocastScope scope(graph, autocasting(Precision::kBf16));
#pragma once
#include <string>
#include <string_view>
#include <vector>

#include "belfry/framework/graph/scopes.h"

namespace belfry {

enum class Precision {
  kF32,
  kTf32,  // like f32, but GPUs round it to tf32 in multiplications
  kBf16,  // products are bf16, and so is what follows, up to an op that needs f32
  kF16,   // likewise; gradients need a loss scale (ops/loss_scale.h)
};

std::vector<std::string> precision_names();
std::string_view name_of(Precision precision);
// Throws InvalidArgument with all names and the nearest one.
Precision find_precision(std::string_view name);

// The argument of an AutocastScope around the model.
Autocasting autocasting(Precision precision);

}  // namespace belfry
