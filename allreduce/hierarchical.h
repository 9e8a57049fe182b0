// hierarchical: two groups of towers with one rotating main device each, as links run on a DGX-1.
#pragma once
#include <span>

#include "belfry/allreduce/strategy.h"

namespace belfry {

// For K towers, an even number, groups are towers [0, K/2) and [K/2, K). For variable v the mains
// are g0 = v mod K and g1 = (g0 + K/2) mod K. Each main sums its group; g1 adds the two sums, g0
// takes the total from there, and every tower takes it from its own group's main. Canonical: the
// groups are the two halves of the tree, and the left half is the left operand whichever main adds
// them.
//
// devices[t] is tower t's. Throws InvalidArgument naming hierarchical and K if K is odd, or if
// there is not one device per tower.
GradientTable allreduce_hierarchical(const GradientTable& grads,
                                     std::span<const DeviceSpec> devices,
                                     Reduction reduction = Reduction::kMean, At at = {});

}  // namespace belfry
