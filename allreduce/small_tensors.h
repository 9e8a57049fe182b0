// Packs consecutive small gradients into one tensor, so that they are combined at once.
#pragma once
#include <cstdint>
#include <memory>
#include <utility>
#include <vector>

#include "belfry/allreduce/strategy.h"

namespace belfry {

// Indices as runs [first, last] of consecutive ones, and the indices outside runs.
struct IndexRuns {
  std::vector<std::pair<int, int>> runs;
  std::vector<int> singles;
};

// Finds runs of at least two and at most `most` increasing indices. A longer run is divided from
// its front: 30 indices in runs of 10 are [0,9], [10,19], [20,29]; 11 are [0,9] and the single 10.
// (In tf_cnn_benchmarks' extract_ranges a run may exceed its limit by two.) Throws InvalidArgument
// if most < 2 or the indices do not increase.
IndexRuns extract_runs(const std::vector<int>& indices, int most);

// How many tensors are packed into one.
inline constexpr int kMostInSmallPack = 10;

// Applies `inner` to a table in which each run of small gradients is one tensor, laid end to end on
// the tower's device. A run has f32 gradients next to each other in the table, each of at most
// max_bytes, and at most max_group of them. Runs come first, then all other gradients unchanged.
// Changes no result of a canonical strategy. Throws InvalidArgument if max_bytes < 1 or max_group <
// 2.
std::unique_ptr<Strategy> small_tensors_packed(std::unique_ptr<Strategy> inner,
                                               std::int64_t max_bytes,
                                               int max_group = kMostInSmallPack);

}  // namespace belfry
