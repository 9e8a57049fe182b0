// How a functor becomes a kernel: for sources that nvcc compiles.
#pragma once
#include "belfry/framework/cuda/kernels/queue.h"

namespace belfry::cuda {

template <class K>
__global__ void run_on_device(const __grid_constant__ K kernel) {
  __shared__ typename K::Shared shared;
  kernel(Block{static_cast<std::int64_t>(blockIdx.x), static_cast<int>(blockDim.x)}, shared);
}

// Enqueues kernel(block, shared) for every block of the grid; nothing for a grid without blocks.
template <class K>
void launch(KernelQueue& queue, const K& kernel, Grid grid) {
  static_assert(sizeof(K) <= 4096, "parameters of a kernel have 4 KiB");
  if (grid.blocks == 0) return;
  queue.launch({.function = reinterpret_cast<const void*>(&run_on_device<K>),
                .kernel = &kernel,
                .grid = grid,
                .on_host = &run_on_host<K>});
}

}  // namespace belfry::cuda
