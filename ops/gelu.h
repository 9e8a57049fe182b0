// Gelu and GeluGrad: x times the probability that a standard normal variable is below x
// (Hendrycks and Gimpel 2016).
#pragma once
#include "belfry/framework/graph/graph.h"

namespace belfry {

enum class GeluForm : std::uint8_t {
  kExact,   // x (1 + erf(x / sqrt(2))) / 2
  kByTanh,  // x (1 + tanh(sqrt(2 / pi) (x + 0.044715 x^3))) / 2, which differs by 5e-4 at most
};

struct GeluOptions {
  GeluForm form = GeluForm::kExact;
};

// f32 and f64 of any shape. -inf gives NaN, as 0 times -inf does.
extern const Op kGelu;
Output gelu(Output x, GeluOptions options = {}, At at = {});

// dy, x -> dy times the derivative of gelu at x.
extern const Op kGeluGrad;

}  // namespace belfry
