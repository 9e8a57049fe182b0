// How the clocks of several processes stand to each other.
#pragma once
#include <cstdint>
#include <vector>

#include "belfry/framework/group/group.h"

namespace belfry {

// What the steady clock of a process shows more than that of rank 0, in nanoseconds. The true
// number differs from `offset` by `error` at most. Clocks drift apart, so it holds for a while.
struct ClockOffset {
  std::int64_t offset = 0, error = 0;
};

// By rank, in all processes, which call it in the same order. Rank 0 asks each other process for
// its time again and again, and believes the answer that came back soonest.
std::vector<ClockOffset> clock_offsets(ProcessGroup& group);

}  // namespace belfry
