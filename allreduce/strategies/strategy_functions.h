// Strategies as functions, for graphs that use no trainer. Each has a source of its own.
#pragma once
#include <span>

#include "belfry/allreduce/strategy.h"

namespace belfry {

// Each variable's K gradients are the inputs of one AllReduce node; output t is tower t's, on its
// device. Means are divided on the way. Canonical for any number of towers. `collective#n` of a
// spec makes n nodes of n chunks of each tensor.
GradientTable allreduce_collective(const GradientTable& grads,
                                   Reduction reduction = Reduction::kMean, At at = {});

// Variables are taken in reverse order, as their gradients become ready: the j-th taken is summed
// by add_n on devices[j mod size]; without devices, on those of the towers. All towers share the
// result. Canonical for any number of towers.
GradientTable allreduce_naive(const GradientTable& grads, std::span<const DeviceSpec> devices = {},
                              Reduction reduction = Reduction::kMean, At at = {});

// The same with all sums on /cpu:0, which need not be a tower's device.
GradientTable allreduce_naive_cpu(const GradientTable& grads,
                                  Reduction reduction = Reduction::kMean, At at = {});

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

// Each physical GPU sums what its towers give, then NCCL sums these, over the GPUs of all processes
// of a run: no canonical order. Throws InvalidArgument if a tower is not on a GPU; there is no
// silent fallback. nccl/xring, nccl/rechd, nccl/pscpu and pscpu/pscpu of specs cannot be built.
GradientTable allreduce_nccl(const GradientTable& grads, Reduction reduction = Reduction::kMean,
                             At at = {});

// Each variable's gradients are summed by add_n on the device of tower 0's variable. All towers
// share the result. Canonical for any number of towers.
GradientTable aggregate_colocate(const GradientTable& grads, Reduction reduction = Reduction::kMean,
                                 At at = {});

}  // namespace belfry
