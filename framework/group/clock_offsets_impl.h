// clock_offsets() by clocks other than the steady one, for its source and its test.
#pragma once
#include <cstdint>
#include <functional>
#include <vector>

#include "belfry/framework/group/clock_offsets.h"

namespace belfry {

// `clock` gives nanoseconds, and never decreases.
std::vector<ClockOffset> clock_offsets_by(ProcessGroup& group,
                                          const std::function<std::int64_t()>& clock);

}  // namespace belfry
