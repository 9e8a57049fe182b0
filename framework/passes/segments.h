// How what a plan has for a physical GPU is cut into runs of launches, which can be captured once
// and replayed as a whole.
#pragma once
#include <vector>

#include "belfry/framework/plan/plan.h"

namespace belfry {

// In the order of their first launches. Nothing in the middle of a segment needs what a host or
// another GPU does after the first of its launches has begun, and whoever waits for one of them may
// as well wait for all. A segment ends
// - behind a launch that another GPU waits for, or one of this GPU that is not Launch::capturable;
// - before a launch that waits for such;
// - before one that waits for a host, unless all that hosts do up to there waits for no GPU: then
//   the segment waits for it at its beginning;
// - where a host waits for one of its launches, by the global order; not for fetches, which are
//   read after the run, and copies to the host still follow.
std::vector<Segment> cut_segments(const Plan& plan);

// Every launch of a GPU by itself, in its own strand.
std::vector<Segment> single_launches(const Plan& plan);

}  // namespace belfry
