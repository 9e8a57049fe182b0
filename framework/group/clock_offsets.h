// How far the clocks of the processes differ.
#pragma once
#include <cstdint>
#include <vector>

#include "belfry/framework/group/group.h"

namespace belfry {

// How far the steady clock of a process is ahead of rank 0's, in nanoseconds. The true number
// differs from `offset` by at most `error`. Clocks drift, so it holds for a while.
struct ClockOffset {
  std::int64_t offset = 0, error = 0;
};

// The offsets by rank. All processes call it, in the same order relative to other calls. Rank 0
// asks each other process for its time repeatedly, and keeps the answer that came back soonest.
std::vector<ClockOffset> clock_offsets(ProcessGroup& group);

}  // namespace belfry
