// Reverse-mode differentiation: adds the nodes that compute dy/dx.
#pragma once
#include <span>
#include <vector>

#include "belfry/framework/graph.h"

namespace belfry {

struct GradientOptions {
  // Each gradient node shares the device of the node it differentiates; otherwise the scopes around
  // the call apply.
  bool colocate = false;
  std::vector<Output> initial = {};  // dL/dy, of y's shape; ones by default
  std::vector<Output> stop = {};     // treated as constants
};

// dy/dx for each x, of x's shape and dtype; an empty Output for an x that y does not depend on.
// Several uses of a tensor are summed by the canonical tree over the uses in order of their
// creation (add_n). Throws NotFound naming the op if one on the way has no gradient,
// InvalidArgument naming op, input and both shapes if a gradient has another shape than its input.
std::vector<Output> gradients(Output y, std::span<const Output> xs, GradientOptions options = {},
                              At at = {});
std::vector<Output> gradients(Output y, std::initializer_list<Output> xs,
                              GradientOptions options = {}, At at = {});
// With respect to variables: to the value from before the step, or, with several reads of one
// variable, to the sum over its reads.
std::vector<Output> gradients(Output y, std::span<const Variable> xs, GradientOptions options = {},
                              At at = {});

// The gradient of a loss with respect to one variable.
struct Gradient {
  Output value;
  Variable variable;
};

// Gradients of a scalar loss; variables that it does not depend on are left out, with a warning.
// Throws InvalidArgument if there are no variables or none has a gradient.
std::vector<Gradient> compute_gradients(Output loss, std::span<const Variable> variables,
                                        GradientOptions options = {.colocate = true}, At at = {});

}  // namespace belfry
