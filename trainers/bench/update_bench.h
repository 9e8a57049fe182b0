// Times an all-reduce with the updates that follow it: what fusing and sharing replicas are worth.
#pragma once
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "belfry/trainers/bench/reduction_bench.h"

namespace belfry {

// One of the four ways to run the same step.
struct UpdateCell {
  bool fuse_updates = false, share_replicas = false;  // as in SessionOptions
  double seconds = 0;                                 // median
  // Of the time with both off over this one, round by round: the median.
  double ratio = 1;
  // Elements of the variables that are wrong after two steps, if checked: with both off, that
  // differ from two plainly computed ones by more than rounding may; else that have other bits than
  // with both off.
  std::optional<std::int64_t> wrong = {};
};

struct UpdateBench {
  std::int64_t elements = 0, bytes = 0;  // of the variables of one tower
  double limit_seconds = 0;              // as of ReductionBench, for buffers of these bytes
  std::vector<UpdateCell> cells;         // both off, fused, shared, both
};

// Replicated variables of these shapes on each device, with a slot each; the mean of gradients that
// are fed, each tower's from memory of its own, is applied by momentum (or the sum: as
// options.reduction says). Cells take turns (Interleaved). Takes devices, threads, dtype (f32 or
// f64), reduction, iterations, warmup and check of the options. Throws what strategies and sessions
// throw.
UpdateBench bench_update(const std::vector<Shape>& shapes, const std::string& strategy,
                         const ReductionBenchOptions& options);

// Bytes of memory that bench_update() takes at most: planned, nothing is given any.
std::int64_t update_memory(const std::vector<Shape>& shapes, const std::string& strategy,
                           const ReductionBenchOptions& options);

}  // namespace belfry
