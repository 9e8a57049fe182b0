// Scaling in place: the least that an all-reduce of private buffers must do with memory, and so the
// limit that it is measured against.
#pragma once
#include <cstdint>
#include <span>

namespace belfry {

// streams[k][i] *= factor for all k and for i in [begin, end), all streams in one loop.
void scale_in_place(std::span<float* const> streams, float factor, std::int64_t begin,
                    std::int64_t end);

}  // namespace belfry
