// Jacobians: all partial derivatives of a vector.
#pragma once
#include <span>
#include <vector>

#include "belfry/framework/gradients/gradients.h"

namespace belfry {

// dy[i]/dx for a y of rank 1 whose size n is known: [n, x...], row i being the gradient of y[i],
// by one backward pass per row (the graph grows with n). A scalar y has the gradient itself, of
// x's shape: the result's shape is always y's followed by x's. An empty Output if y does not depend
// on x, or zeros, as options.unconnected says. Nodes are named jacobian/...
//
// Throws InvalidArgument if y has rank 2 or more (flatten it), if its size is not known, if more
// than one dimension of x is not known, and for options.initial; otherwise as gradients() does.
Output jacobian(Output y, Output x, GradientOptions options = {}, At at = {});
// With respect to a variable: to all its reads.
Output jacobian(Output y, Variable x, GradientOptions options = {}, At at = {});
// One result per x.
std::vector<Output> jacobian(Output y, std::span<const Output> xs, GradientOptions options = {},
                             At at = {});

}  // namespace belfry
