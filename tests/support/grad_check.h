// Compares gradients with central differences in f64.
#pragma once
#include <functional>
#include <span>
#include <string>
#include <vector>

#include "belfry/framework/base/tensor.h"
#include "belfry/framework/graph/node.h"

namespace belfry {

// Outputs of a builder: one, or a list.
struct Built : std::vector<Output> {
  Built(Output output) : std::vector<Output>{output} {}                            // NOLINT
  Built(std::vector<Output> outputs) : std::vector<Output>(std::move(outputs)) {}  // NOLINT
};

// Builds the outputs under test from placeholders: "[](Inputs x) { return relu(x[0]); }".
using Inputs = std::span<const Output>;
using Builder = std::function<Built(Inputs)>;

struct GradientError {
  double largest = 0;  // of |analytic - numeric| / max(1, |analytic|, |numeric|)
  std::string where;   // "output 0, input 1, element 7: analytic 2, numeric 3"
};

// Differentiates <r, y> for each floating output y of `build` with respect to every f64 input; r is
// random and fixed. It takes each element of an input. If they are many, it takes some, and one
// direction. A missing gradient counts as zeros. Inputs should keep `step` away from kinks.
GradientError gradient_error(const Builder& build, std::span<const Tensor> inputs,
                             double step = 1e-5);

}  // namespace belfry
