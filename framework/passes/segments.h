// Cuts the launches of a GPU into segments that can be captured once and replayed as one graph.
#pragma once
#include <vector>

#include "belfry/framework/plan/plan.h"

namespace belfry {

// Cuts the launches of each physical GPU, in the global order, into segments. Between two launches
// of a segment there may be launches of hosts and of other GPUs, but none of this GPU. A segment
// waits at its beginning for everything that its launches wait for. A launch outside that waits for
// one inside waits for the whole segment. Not captured are launches that are not
// Launch::capturable, and the parts of a collective by several ranks if, in the global order, a
// launch after the first part, up to the last one, waits for a GPU and is not of that GPU. For one
// part ends only after all have begun, so all should have one place in that order. A new segment
// begins
// - before and after a launch that is not captured, which is its own segment;
// - after a launch for which another GPU waits, or a launch that is not captured;
// - before a launch that waits for another GPU, or for a launch that is not captured;
// - before a launch that waits for a launch H of a host, if H, or any launch of a host before H in
//   the global order, waits for a GPU;
// - at the place, in the global order, of a launch of a host that waits for a launch of the
//   segment. Copies to the host that follow still join the segment. A fetch does not count here,
//   because it is read after the run.
// Returns the segments in the order of their first launches. Every wait points backwards in the
// global order, where a segment has the place of its first launch. So no cycle can form.
std::vector<Segment> cut_segments(const Plan& plan);

// Makes each launch of a GPU its own segment, in the launch's own strand.
std::vector<Segment> single_launches(const Plan& plan);

}  // namespace belfry
