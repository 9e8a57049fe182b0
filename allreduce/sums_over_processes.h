// How the gradients of all processes are combined (framework/core_ops/between_processes.h).
#pragma once
#include <vector>

#include "belfry/allreduce/verify/gradient_table.h"
#include "belfry/framework/core_ops/between_processes.h"

namespace belfry {

// kTree: the canonical sum over the towers of all processes. kRing: process by process along a ring
// of ranks, each piece from another rank on. kMpi: in an order that MPI chooses.
enum class ProcessSum { kTree, kRing, kMpi };

// What Strategy::sum or Strategy::mean returns for a graph of one of several processes: the sum
// over the towers of all, or its mean. Each process sums what its own towers give first. With
// `together`, all tensors of the table, which have one dtype, travel as one. 16 bits are summed and
// sent as f32, and rounded once.
std::vector<std::vector<Output>> sums_over_processes(const GradientTable& grads, bool mean,
                                                     bool together,
                                                     ProcessSum sum = ProcessSum::kTree);

// Of variables [first, last) laid end to end: this process's piece of the canonical sum, or of the
// mean. The other processes keep theirs.
Output own_piece_of_sum(const GradientTable& grads, int first, int last, bool mean,
                        const Cuts& cuts);

}  // namespace belfry
