// Times an all-reduce with the updates after it, with and without fusing and sharing of replicas.
#pragma once
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "reduction_bench.h"

namespace belfry {

// One of the four ways to run the same step.
struct UpdateCell {
  bool fuse_updates = false, share_replicas = false;  // as in SessionOptions
  double seconds = 0;                                 // median
  // The time with both off over this cell's: the median over rounds.
  double ratio = 1;
  // The number of wrong elements of the variables after two steps, if checked. With both off, they
  // differ from plainly computed steps by more than rounding permits; else their bits differ from
  // those with both off.
  std::optional<std::int64_t> wrong = {};
};

struct UpdateBench {
  std::int64_t elements = 0, bytes = 0;  // of the variables of one tower
  double limit_seconds = 0;              // as in ReductionBench, for buffers of these bytes
  std::vector<UpdateCell> cells;         // both off, fused, shared, both
};

// Replicates variables of these shapes on each device, with a slot each. Momentum applies the mean,
// or the sum (options.reduction), of gradients that each tower gets from its own memory. Cells take
// turns (Interleaved). Takes devices, threads, dtype (f32 or f64), reduction, iterations, warmup
// and check of the options. Throws what strategies and sessions throw.
UpdateBench bench_update(const std::vector<Shape>& shapes, const std::string& strategy,
                         const ReductionBenchOptions& options);

// The most bytes of memory that bench_update() takes. Plans, and allocates nothing.
std::int64_t update_memory(const std::vector<Shape>& shapes, const std::string& strategy,
                           const ReductionBenchOptions& options);

}  // namespace belfry
