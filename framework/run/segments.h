// Segments: what a plan has for a physical GPU, cut into runs of launches that can be captured once
// and replayed as a whole.
#pragma once
#include <span>
#include <vector>

#include "belfry/framework/plan/plan.h"

namespace belfry {

// Launches of one physical GPU, on any of its lanes, that follow each other in the global order.
// Nothing in the middle needs what a host or another GPU does after the first of them has begun,
// and whoever waits for one of them may as well wait for all.
struct Segment {
  int gpu;
  int lane;                   // in whose stream it is enqueued
  std::vector<int> launches;  // in order

  bool captured() const { return launches.size() > 1; }
};

// In the order of their first launches. `worker_of`: as deal_lanes gives it. A segment ends
// - behind a launch that another GPU waits for, or one of this GPU that is not Launch::captured;
// - before a launch that waits for such;
// - before one that waits for a host, unless all that the host does up to there waits for no GPU:
//   then the segment waits for it at its beginning;
// - where a host waits for one of its launches, by the global order; not for fetches, which are
//   read after the run, and copies to the host still follow.
std::vector<Segment> cut_segments(const Plan& plan, std::span<const int> worker_of);

// Every launch of a GPU by itself, in its own lane.
std::vector<Segment> single_launches(const Plan& plan);

// The launch that a wait is for.
int awaited(const Plan& plan, const Wait& wait);

}  // namespace belfry
