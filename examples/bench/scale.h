// Scaling in place: the least memory traffic of an all-reduce of private buffers, and so its limit.
#pragma once
#include <cstdint>
#include <span>

namespace belfry {

// streams[k][i] *= factor for all k and for i in [begin, end), all streams in one loop.
void scale_in_place(std::span<float* const> streams, float factor, std::int64_t begin,
                    std::int64_t end);

}  // namespace belfry
