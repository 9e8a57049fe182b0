// naive: one sum per variable, on rotating devices; naive_cpu: all of them on cpu:0.
#pragma once
#include <span>

#include "belfry/allreduce/strategy.h"

namespace belfry {

// Variables are taken in reverse order, as their gradients become ready: the j-th taken is summed
// by add_n on devices[j mod size]; without devices, on those of the towers. All towers share the
// result. Canonical for any number of towers.
GradientTable allreduce_naive(const GradientTable& grads, std::span<const DeviceSpec> devices = {},
                              Reduction reduction = Reduction::kMean, At at = {});

// The same with all sums on /cpu:0, which need not be a tower's device.
GradientTable allreduce_naive_cpu(const GradientTable& grads,
                                  Reduction reduction = Reduction::kMean, At at = {});

}  // namespace belfry
