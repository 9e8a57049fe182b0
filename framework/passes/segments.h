// How what a plan has for a physical GPU is cut into runs of launches, which can be captured once
// and replayed as a whole.
#pragma once
#include <vector>

#include "belfry/framework/plan/plan.h"

namespace belfry {

// Cuts the launches of each physical GPU, in the global order, into segments. Between those of a
// segment lies no other launch of this GPU; launches of hosts and of other GPUs may. What a launch
// waits for, its segment waits for at its beginning; who waits for a launch waits for its whole
// segment, unless both are in it. A new segment begins
// - before and behind a launch that is not Launch::capturable, which is a segment by itself;
// - behind a launch for which another GPU waits, or a launch that is not capturable;
// - before a launch that waits for another GPU, or for a launch that is not capturable;
// - before a launch that waits for a launch H of a host, if H, or any launch of a host before H in
//   the global order, waits for a GPU;
// - at the place, in the global order, of a launch of a host that waits for a launch of the
//   segment. Copies to the host that follow still join the segment. A fetch does not count here, as
//   it is read after the run.
// Returns them in the order of their first launches. Every wait points backwards in the global
// order, where a segment has the place of its first launch. So no cycle can form.
std::vector<Segment> cut_segments(const Plan& plan);

// Each launch of a GPU as a segment by itself, in its own strand.
std::vector<Segment> single_launches(const Plan& plan);

}  // namespace belfry
