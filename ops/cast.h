// Cast: another element type.
#pragma once
#include "belfry/framework/graph/graph.h"

namespace belfry {

extern const Op kCast;

struct CastOptions {
  DType dtype = DType::kF32;
};

// Casts any type; f16 and bf16 go by way of f32. Floating-point values are truncated to integers.
// Values out of range become the nearest integer of the type, NaN becomes 0. Integers wrap. As a
// bool, everything but 0 is true. Returns x itself if it has the type already. The gradient flows
// between floating-point types only.
Output cast(Output x, DType dtype, At at = {});

}  // namespace belfry
