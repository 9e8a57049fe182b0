// Packs consecutive small gradients into one tensor, so that they are combined at once.
#pragma once
#include <cstdint>
#include <utility>
#include <vector>

#include "belfry/allreduce/strategy.h"

namespace belfry {

// Finds runs [first, last] of at least two and at most `most` consecutive indices. A longer run is
// divided from its front: 30 indices in runs of 10 are [0,9], [10,19], [20,29]; 11 are [0,9], and
// 10 is in none. (tf_cnn_benchmarks' extract_ranges lets a run grow to two more than its limit.)
// Throws InvalidArgument if most < 2 or the indices do not increase.
std::vector<std::pair<int, int>> extract_runs(const std::vector<int>& indices, int most);

// The results of a strategy for a table in which each run of small gradients is one tensor, laid
// end to end on the tower's device; then in parts. A run has f32 gradients next to each other in
// the table, each of at most packing.small_bytes, and at most packing.small_group of them. Runs
// come first, then all other gradients as they are. Leaves the table as it is if small_bytes is 0.
// Throws InvalidArgument if small_bytes < 0 or small_group < 2.
OutputRows combine_packed(const GradientTable& grads, const Strategy& strategy, Reduction reduction,
                          const Packing& packing);

}  // namespace belfry
