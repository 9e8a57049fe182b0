// Jacobians: all partial derivatives of a vector.
#pragma once
#include <span>
#include <vector>

#include "belfry/framework/gradients/gradients.h"

namespace belfry {

// dy[i]/dx for a y of rank 1 with a known size n: [n, x...], where row i is the gradient of y[i],
// by one backward pass per row (the graph grows with n). For a scalar y it is the gradient itself,
// of x's shape: the result's shape is always y's followed by x's. An empty Output if y does not
// depend on x, or zeros, depending on options.unconnected. Nodes are named jacobian/...
//
// Throws InvalidArgument if y has rank 2 or more (flatten it), if its size is unknown, if more than
// one dimension of x is unknown, and for options.initial; otherwise throws as gradients() does.
Output jacobian(Output y, Output x, GradientOptions options = {}, At at = {});
// With respect to a variable: the sum over all its reads.
Output jacobian(Output y, Variable x, GradientOptions options = {}, At at = {});
// One result per x.
std::vector<Output> jacobian(Output y, std::span<const Output> xs, GradientOptions options = {},
                             At at = {});

}  // namespace belfry
