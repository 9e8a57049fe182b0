// Activate and ActivateGrad: activations with one parameter, in one pass over memory each way. f32
// and f64. ReLU, GELU, SiLU, sigmoid and tanh are ops of their own.
#pragma once
#include "belfry/framework/graph/graph.h"

namespace belfry {

enum class ActivationFunction : std::uint8_t {
  kLeakyRelu,
  kElu,
  kHardSwish,
  kHardSigmoid,
  kSoftplus
};

struct ActivationOptions {
  ActivationFunction function = ActivationFunction::kLeakyRelu;
  double parameter = 1;
};

extern const Op kActivate;
// dy, x -> dy times the derivative at x.
extern const Op kActivateGrad;

// Each op says what its derivative is at a kink, as PyTorch does.
Output leaky_relu(Output x, double slope = 0.01,
                  At at = {});                       // x > 0 ? x : slope x; at 0 the slope
Output elu(Output x, double alpha = 1, At at = {});  // x > 0 ? x : alpha (e^x - 1); at 0 alpha
Output hard_sigmoid(Output x, At at = {});           // (x + 3) / 6 within [0, 1]; at both ends 0
Output hard_swish(Output x, At at = {});             // x hard_sigmoid(x); at -3 0, at 3 1
Output softplus(Output x, double beta = 1, At at = {});  // log(1 + e^(beta x)) / beta

}  // namespace belfry
