// Tensors filled with one value.
#pragma once
#include <cstring>

#include "belfry/framework/cuda/kernels/launch.h"
#include "belfry/framework/cuda/kernels/pack.h"

namespace belfry::cuda {

// Repeats the pattern over bytes [0, count) of y.
struct FillBytes {
  using Shared = Nothing;
  Pack<std::uint8_t> pattern;
  std::int64_t count;
  bool packed;
  std::uint8_t* y;

  BELFRY_HD void operator()(const Block& block, Shared&) const {
    block.each([&](int thread) {
      const std::int64_t first = (block.index * block.threads + thread) * 16;
      if (packed && first + 16 <= count) {
        *reinterpret_cast<Pack<std::uint8_t>*>(y + first) = pattern;
        return;
      }
      for (std::int64_t i = first; i < first + 16 && i < count; ++i) y[i] = pattern.at[i - first];
    });
  }
};

inline void fill_bytes(KernelQueue& queue, const Pack<std::uint8_t>& pattern, void* y,
                       std::int64_t count) {
  launch(queue, FillBytes{pattern, count, on_16_bytes(y), static_cast<std::uint8_t*>(y)},
         grid_of_packs<std::uint8_t>(count));
}
template <class T>
void fill_one(KernelQueue& queue, T value, T* y) {
  Pack<std::uint8_t> pattern{};
  std::memcpy(pattern.at, &value, sizeof value);
  fill_bytes(queue, pattern, y, sizeof value);
}
inline void fill_zeros(KernelQueue& queue, void* y, std::int64_t bytes) {
  fill_bytes(queue, {}, y, bytes);
}

}  // namespace belfry::cuda
