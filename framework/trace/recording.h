// When the launches of one run ran, and on which worker. A Trace is made from it.
#pragma once
#include <chrono>
#include <cstdint>
#include <map>
#include <memory>
#include <vector>

#include "belfry/framework/device/gpu_backend.h"
#include "belfry/framework/graph/kernel.h"
#include "belfry/framework/plan/schedule.h"

namespace belfry {

// Sized before the run, so that recording allocates nothing. Each worker writes to its own part.
struct Recording {
  using Clock = std::chrono::steady_clock;

  // In nanoseconds since `zero`.
  struct Interval {
    std::int64_t start = 0, end = 0;
  };
  // A part of a shared launch that was run by a worker other than the launch's own.
  struct Part {
    LaunchIndex launch;
    WorkRange range;
    Interval time;
  };

  // Timers around a launch on a GPU, and when the host had enqueued it.
  struct OnGpu {
    std::unique_ptr<GpuEvent> start, end;
    std::int64_t enqueued = 0;
  };
  // Ties the clock of a GPU to the host's: the GPU reached the timer at `time`, or later.
  struct Tie {
    std::unique_ptr<GpuEvent> timer;
    std::int64_t time = 0;
  };

  std::int64_t now() const {
    return std::chrono::duration_cast<std::chrono::nanoseconds>(Clock::now() - zero).count();
  }

  Interval& of(LaunchIndex launch, int shard) {
    return shard == 0 ? launches[launch] : shards[launch][static_cast<std::size_t>(shard) - 1];
  }

  Clock::time_point zero = Clock::now();
  // One per launch of Plan::launches. Until the timers are read, a launch on a GPU has the times
  // when it was enqueued. A launch that runs once per shard has the times of the first shard.
  Indexed<Launch, Interval> launches;
  Indexed<Launch, std::vector<Interval>> shards;  // of the shards after the first
  Indexed<Launch, OnGpu> on_gpu;  // as Plan::launches, null timers on hosts; empty without GPUs
  std::map<int, Tie> ties;        // by physical GPU
  std::vector<std::vector<Part>> parts;  // per worker, in order of time
};

}  // namespace belfry
