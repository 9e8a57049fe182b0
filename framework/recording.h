// When the launches of one run ran, and on which worker: what a Trace is made of.
#pragma once
#include <chrono>
#include <cstdint>
#include <vector>

#include "belfry/framework/kernel.h"

namespace belfry {

// Sized before the run, so that recording allocates nothing. Workers write to parts of their own.
struct Recording {
  using Clock = std::chrono::steady_clock;

  // In nanoseconds since `zero`.
  struct Interval {
    std::int64_t start = 0, end = 0;
  };
  // A chunk of a shared launch that another worker than the launch's own ran.
  struct Chunk {
    int launch;
    Range range;
    Interval time;
  };

  std::int64_t now() const {
    return std::chrono::duration_cast<std::chrono::nanoseconds>(Clock::now() - zero).count();
  }

  Clock::time_point zero = Clock::now();
  std::vector<Interval> launches;          // as Plan::launches
  std::vector<std::vector<Chunk>> chunks;  // per worker, in order of time
};

}  // namespace belfry
