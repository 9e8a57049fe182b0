// Second derivatives of norms: those of norms by other ops.
#pragma once
#include <functional>
#include <span>
#include <vector>

#include "belfry/framework/graph/graph.h"

namespace belfry {

// x less its mean along these axes, divided by the root of its variance + epsilon.
Output composed_norm(Output x, std::vector<int> axes, double epsilon);

// Op::gradient of the gradient of a norm: dy, x, gamma, and moments of x -> dx, dgamma, and dbeta
// if the norm has a beta. `normalise` returns x normalised by other ops, before gamma. The moments
// follow from x, so they have no gradients of their own.
std::vector<Output> norm_grad_gradient(const Node& node, std::span<const Output> grads,
                                       const std::function<Output(Output x)>& normalise);

}  // namespace belfry
