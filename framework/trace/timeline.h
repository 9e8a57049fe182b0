// The content of a trace before it is text: slices on tracks, arrows between them, memory in use.
#pragma once
#include <cstdint>
#include <vector>

#include "belfry/framework/plan/plan.h"
#include "belfry/framework/trace/recording.h"

namespace belfry {

struct Timeline {
  static constexpr int kWorkers = -1;

  // The strand of a device, or a worker.
  struct Track {
    int device;  // or kWorkers
    int index;   // among the tracks of its device; the worker
  };
  // Times are in nanoseconds. On each track, a slice starts after the previous one has ended. Each
  // is long enough for a point strictly inside.
  struct Slice {
    int track;
    NodeIndex node;
    bool is_part = false;
    WorkRange range;  // of a part, or of the launch
    int shard = 0;    // of a launch that runs once per shard
    std::int64_t start = 0, end = 0;
    std::int64_t enqueued = -1;  // for a launch on a GPU: when the host enqueued it
  };
  // A tensor on its way from a slice to a later one on another device.
  struct Arrow {
    int from, to;  // slices; `from` ends before `to` starts
    Value value;
  };
  // Bytes of a device's arena in use from `time` on.
  struct Level {
    int device;
    std::int64_t time;
    std::int64_t bytes;
  };

  std::vector<Track> tracks;
  std::vector<Slice> slices;  // first those of Plan::launches, in that order
  std::vector<Arrow> arrows;
  std::vector<Level> levels;  // by device, then time; the first of each device at 0
};

// Keeps the order: a launch that waits for others, directly or through strands, starts after they
// end.
Timeline make_timeline(const Plan& plan, const Recording& recording);

}  // namespace belfry
