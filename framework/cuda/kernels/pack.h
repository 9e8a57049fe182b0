// Accesses of 16 bytes.
#pragma once
#include <cstdint>

#include "belfry/framework/cuda/kernels/block.h"

namespace belfry::cuda {

// What a thread reads or writes at once.
template <class T>
struct alignas(16) Pack {
  static constexpr int kSize = 16 / static_cast<int>(sizeof(T));
  T at[kSize];
};

inline bool on_16_bytes(const void* p) { return reinterpret_cast<std::uintptr_t>(p) % 16 == 0; }

// The blocks that have a thread for each Pack of `count` elements.
template <class T>
Grid grid_of_packs(std::int64_t count) {
  return grid_for((count + Pack<T>::kSize - 1) / Pack<T>::kSize);
}

}  // namespace belfry::cuda
