#include "scale.h"

#include <algorithm>

#include "belfry/framework/kernels/simd.h"

namespace belfry {
namespace {

template <int n>
BELFRY_HD void scale_unrolled(float* const* streams, float factor, std::int64_t begin,
                              std::int64_t end) {
  float* x[n];
  for (int k = 0; k < n; ++k) x[k] = streams[k];
  BELFRY_INDEPENDENT
  for (std::int64_t i = begin; i < end; ++i)
    for (int k = 0; k < n; ++k) x[k][i] *= factor;
}

BELFRY_KERNEL void scale_streams(float* const* streams, int n, float factor, std::int64_t begin,
                                 std::int64_t end) {
  switch (n) {
    case 1: return scale_unrolled<1>(streams, factor, begin, end);
    case 2: return scale_unrolled<2>(streams, factor, begin, end);
    case 3: return scale_unrolled<3>(streams, factor, begin, end);
    case 4: return scale_unrolled<4>(streams, factor, begin, end);
    case 5: return scale_unrolled<5>(streams, factor, begin, end);
    case 6: return scale_unrolled<6>(streams, factor, begin, end);
    case 7: return scale_unrolled<7>(streams, factor, begin, end);
    case 8: return scale_unrolled<8>(streams, factor, begin, end);
    default: break;
  }
}

}  // namespace

void scale_in_place(std::span<float* const> streams, float factor, std::int64_t begin,
                    std::int64_t end) {
  constexpr std::int64_t kChunk = 1024;  // if there are more streams than a loop takes
  constexpr std::size_t kMost = 8;
  for (std::int64_t at = begin; at < end;) {
    const std::int64_t stop = streams.size() > kMost ? std::min(at + kChunk, end) : end;
    for (std::size_t k = 0; k < streams.size(); k += kMost)
      scale_streams(streams.data() + k, static_cast<int>(std::min(kMost, streams.size() - k)),
                    factor, at, stop);
    at = stop;
  }
}

}  // namespace belfry
