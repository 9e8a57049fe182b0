// Copies of dense memory.
#pragma once
#include "belfry/framework/cuda/kernels/pointwise.h"

namespace belfry::cuda {

struct SameByte {
  BELFRY_HD std::uint8_t operator()(std::uint8_t x) const { return x; }
};

inline void copy_bytes(KernelQueue& queue, const void* from, void* to, std::int64_t bytes) {
  Map<SameByte, std::uint8_t, 1> kernel{.count = bytes,
                                        .y = static_cast<std::uint8_t*>(to),
                                        .x = {static_cast<const std::uint8_t*>(from)}};
  launch_map(queue, kernel);
}

}  // namespace belfry::cuda
