// Combines the gradients of all processes (framework/core_ops/between_processes.h).
#pragma once
#include <vector>

#include "belfry/allreduce/verify/gradient_table.h"
#include "belfry/framework/core_ops/between_processes.h"

namespace belfry {

// kTree: the canonical sum over the towers of all processes. kRing: process by process along a ring
// of ranks, where the sum of each piece starts at a different rank. kMpi: in an order that MPI
// chooses.
enum class ProcessSum { kTree, kRing, kMpi };

// The result of Strategy::combine if there are several processes: the sum or mean over the towers
// of all. Each process first sums the gradients of its own towers. With `together`,
// all tensors of the table, which have one dtype, travel as one. 16 bits are summed and sent as
// f32, and rounded once.
OutputRows combine_over_processes(const GradientTable& grads, bool mean, bool together,
                                  ProcessSum sum = ProcessSum::kTree);

// This process's piece of the canonical sum or mean of variables [first, last), laid end to end (a
// reduce-scatter).
Output own_piece_of_sum(const GradientTable& grads, int first, int last, bool mean,
                        const Cuts& cuts);

}  // namespace belfry
