// Strategies as functions, for graphs that use no trainer. Each has a source of its own.
#pragma once
#include <span>

#include "belfry/allreduce/strategy.h"

namespace belfry {

// Each variable's K gradients are the inputs of one AllReduce node; output t is tower t's, on its
// device. The node also divides means. Canonical for any number of towers. `collective#n` of a spec
// makes n nodes of n chunks of each tensor.
GradientTable allreduce_collective(const GradientTable& grads,
                                   Reduction reduction = Reduction::kMean, At at = {});

// Variables are taken in reverse order, as their gradients become ready. devices[j mod size] sums
// the j-th one taken, by add_n. Without `devices`, those of the towers serve. All towers share the
// result. Canonical for any number of towers.
GradientTable allreduce_naive(const GradientTable& grads, std::span<const DeviceSpec> devices = {},
                              Reduction reduction = Reduction::kMean, At at = {});

// Naive with all sums on /cpu:0, which need not be a tower's device.
GradientTable allreduce_naive_cpu(const GradientTable& grads,
                                  Reduction reduction = Reduction::kMean, At at = {});

// K is an even number of towers, and groups are towers [0, K/2) and [K/2, K). For variable v the
// mains are g0 = v mod K and g1 = (g0 + K/2) mod K. Each main sums its group. g1 adds the two sums,
// g0 takes the total from there, and every tower takes it from its own group's main. Canonical: the
// groups are the two halves of the tree, and the left half is the left operand whichever main adds
// them.
GradientTable allreduce_hierarchical(const GradientTable& grads,
                                     std::span<const DeviceSpec> devices,
                                     Reduction reduction = Reduction::kMean, At at = {});

// Each physical GPU sums the gradients of its towers. NCCL sums these results over the GPUs of all
// processes, in no canonical order. Throws InvalidArgument if a tower is not on a GPU; there is no
// silent fallback. nccl/xring, nccl/rechd, nccl/pscpu and pscpu/pscpu of specs cannot be built.
GradientTable allreduce_nccl(const GradientTable& grads, Reduction reduction = Reduction::kMean,
                             At at = {});

// The device of tower 0's variable sums each variable's gradients, by add_n. All towers share the
// result. Canonical for any number of towers.
GradientTable aggregate_colocate(const GradientTable& grads, Reduction reduction = Reduction::kMean,
                                 At at = {});

}  // namespace belfry
