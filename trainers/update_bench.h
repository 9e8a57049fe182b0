// Times an all-reduce with the updates that follow it: what fusing and sharing replicas are worth.
#pragma once
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "belfry/trainers/reduction_bench.h"

namespace belfry {

// One of the four ways to run the same step.
struct UpdateCell {
  bool fuse_updates = false, share_replicas = false;  // as in SessionOptions
  double seconds = 0;                                 // median
  // Of the time with both off over this one, round by round: the median.
  double ratio = 1;
  // Elements of the variables that differ from those with both off after two steps, if checked.
  std::optional<std::int64_t> wrong = {};
};

struct UpdateBench {
  std::int64_t elements = 0, bytes = 0;  // of the variables of one tower
  std::vector<UpdateCell> cells;         // both off, fused, shared, both
};

// Replicated variables of these shapes on each device, with a slot each; the mean of gradients that
// are fed, each tower's from memory of its own, is applied by momentum (or the sum: as
// options.reduction says). Cells take turns (Interleaved). Takes devices, threads, dtype (f32 or
// f64), reduction, iterations, warmup and check of the options. Throws what strategies and sessions
// throw.
UpdateBench bench_update(const std::vector<Shape>& shapes, const std::string& strategy,
                         const ReductionBenchOptions& options);

}  // namespace belfry
