// shuffle: each device sums one fragment of every tensor, then all gather the fragments.
#pragma once
#include <span>

#include "belfry/allreduce/strategy.h"

namespace belfry {

// Each tensor is cut into as many fragments of nearly equal size as there are `devices`; without
// devices, those of the towers. Fragment f is summed over all towers by add_n on devices[f] (and
// divided there, if a mean is wanted); every tower joins the sums on its own device. In specs,
// `shuffle#n` deals n fragments to each device; `psgpu` is shuffle, `pscpu` is shuffle over the
// CPUs cpu:0, cpu:1, ... There are as many of these as towers, but no further than the last one
// that a tower is on. Where no tower is on a CPU, it is cpu:0 alone.
//
// Canonical for any number of towers; works for any shape. Throws InvalidArgument if the shape of a
// gradient is not fully known.
GradientTable allreduce_shuffle(const GradientTable& grads,
                                std::span<const DeviceSpec> devices = {},
                                Reduction reduction = Reduction::kMean, At at = {});

}  // namespace belfry
