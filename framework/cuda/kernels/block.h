// Kernels as functors that hosts can run, too: tests compute with them where no GPU is.
//
//   struct Kernel {
//     struct Shared { float partial[256]; };  // or: using Shared = Nothing;
//     BELFRY_HD void operator()(const Block& block, Shared& shared) const {
//       block.each([&](int thread) { shared.partial[thread] = ...; });
//       block.each([&](int thread) { ... });  // sees what all threads did before
//     }
//   };
//
// Values that a thread keeps from one phase to the next are in Shared.
#pragma once
#include <cstdint>
#include <cstring>

#include "belfry/framework/kernels/simd.h"

namespace belfry::cuda {

struct Nothing {};

// The threads of a block, which go through its phases together.
struct Block {
  std::int64_t index;  // among the blocks of the launch
  int threads;
  const int* order = nullptr;  // of the threads, on hosts; null: by number

  // One phase: f(thread) of each, 0 <= thread < threads.
  template <class F>
  BELFRY_HD void each(F f) const {
#if defined(__CUDA_ARCH__)
    f(static_cast<int>(threadIdx.x));
    __syncthreads();
#else
    for (int i = 0; i < threads; ++i) f(order ? order[i] : i);
#endif
  }
};

struct Grid {
  std::int64_t blocks = 1;
  int threads = 256;  // of a block
};

// Enough blocks of `threads` for a thread per item.
inline Grid grid_for(std::int64_t items, int threads = 256) {
  return {(items + threads - 1) / threads, threads};
}

// In which order a host runs the blocks of a launch, and the threads of each phase; null: by
// number.
struct HostOrder {
  const std::int64_t* blocks = nullptr;
  const int* threads = nullptr;
};

// `kernel` points to a K. Kernels must not rely on the order of blocks or threads, nor on their
// shared memory: its bits are all ones at first, which are NaN.
template <class K>
void run_on_host(const void* kernel, Grid grid, HostOrder order) {
  for (std::int64_t b = 0; b < grid.blocks; ++b) {
    typename K::Shared shared;
    std::memset(&shared, 0xff, sizeof(shared));
    (*static_cast<const K*>(kernel))(
        Block{order.blocks ? order.blocks[b] : b, grid.threads, order.threads}, shared);
  }
}

}  // namespace belfry::cuda
