// Cuts the launches of a GPU into segments that can be captured once and replayed as one graph.
#pragma once
#include <vector>

#include "belfry/framework/plan/plan.h"

namespace belfry {

// Cuts the launches of each physical GPU, in the global order, into segments. Between two launches
// of a segment there may be launches of hosts and of other GPUs, but none of this GPU. A segment
// waits at its beginning for everything that its launches wait for. A launch outside that waits for
// one inside waits for the whole segment. A new segment begins
std::vector<Segment> cut_segments(const Plan& plan);

// Makes a segment of each launch of a GPU, in the launch's own strand.
std::vector<Segment> single_launches(const Plan& plan);

}  // namespace belfry
