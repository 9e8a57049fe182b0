// shuffle: each device sums one fragment of every tensor, then all gather the fragments.
#pragma once
#include <span>

#include "belfry/allreduce/strategy.h"

namespace belfry {

// Each tensor is cut into as many fragments of nearly equal size as there are `devices`. Without
// `devices`, those of the towers serve. devices[f] sums fragment f over all towers by add_n, and
// divides it for a mean. Every tower joins the sums on its own device. In specs, `shuffle#n` deals
// n fragments to each device. `psgpu` is shuffle, and `pscpu` is shuffle over the CPUs cpu:0,
// cpu:1, ... There are as many of these as towers, but none beyond the last CPU that has a tower.
// If no CPU has a tower, cpu:0 sums alone.
GradientTable allreduce_shuffle(const GradientTable& grads,
                                std::span<const DeviceSpec> devices = {},
                                Reduction reduction = Reduction::kMean, At at = {});

}  // namespace belfry
