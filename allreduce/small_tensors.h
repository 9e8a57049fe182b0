// Packs small gradients that follow each other into one tensor, so that they are combined at once.
#pragma once
#include <cstdint>
#include <memory>
#include <utility>
#include <vector>

#include "belfry/allreduce/strategy.h"

namespace belfry {

// Indices as runs of consecutive ones, [first, last], and those that are left alone.
struct IndexRuns {
  std::vector<std::pair<int, int>> runs;
  std::vector<int> singles;
};

// Of increasing indices, the runs of at least two and at most `most`. A longer one is divided from
// its front: 30 indices in runs of 10 are [0,9], [10,19], [20,29]; 11 are [0,9] and the single 10.
// (tf_cnn_benchmarks' extract_ranges lets a run grow to two more than its limit.) Throws
// InvalidArgument if most < 2 or the indices do not increase.
IndexRuns extract_runs(const std::vector<int>& indices, int most);

// How many tensors are packed into one.
inline constexpr int kMostInSmallPack = 10;

// `inner` applied to a table in which runs of small gradients are one tensor each, laid end to end
// on the tower's device. A run is of f32, at most max_bytes each, next to each other in the table,
// at most max_group of them; these come first, then all other gradients as they are. Changes no
// result of a canonical strategy. Throws InvalidArgument if max_bytes < 1 or max_group < 2.
std::unique_ptr<Strategy> small_tensors_packed(std::unique_ptr<Strategy> inner,
                                               std::int64_t max_bytes,
                                               int max_group = kMostInSmallPack);

}  // namespace belfry
