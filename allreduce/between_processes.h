// How the gradients of all processes are combined (framework/core_ops/between_processes.h).
#pragma once
#include <string>
#include <string_view>
#include <vector>

#include "belfry/allreduce/verify/gradient_table.h"

namespace belfry {

// kTree: the canonical sum over the towers of all processes. kRing: process by process along a ring
// of ranks, each piece from another rank on. kMpi: in an order that MPI chooses.
enum class ProcessSum { kTree, kRing, kMpi };

// Strategy::refusal_of_processes() of `name`, which sums so: of towers on GPUs.
std::string refusal_of_gpus(std::string_view name, const std::vector<DeviceSpec>& devices);

// What Strategy::sum or Strategy::mean returns for a graph of one of several processes: the sum
// over the towers of all, or its mean. Each process sums what its own towers give first. With
// `together`, all tensors of the table, which have one dtype, travel as one. 16 bits are summed and
// sent as f32, and rounded once.
std::vector<std::vector<Output>> sums_over_processes(const GradientTable& grads, bool mean,
                                                     bool together,
                                                     ProcessSum sum = ProcessSum::kTree);

}  // namespace belfry
