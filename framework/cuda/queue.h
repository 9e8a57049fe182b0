// Where kernels of the module enqueue their work. Everything that a step asks of CUDA and its
// libraries goes through this class, so that tests can stand in for a GPU.
#pragma once
#include "belfry/framework/cuda/block.h"

namespace belfry::cuda {

struct KernelLaunch {
  const void* function;  // __global__, of one parameter
  const void* kernel;    // that parameter: the functor
  Grid grid;
  void (*on_host)(const void* kernel, Grid grid);  // does the same
};

// One stream of one GPU with the handles of libraries. Used by one thread at a time.
class Queue {
 public:
  virtual ~Queue() = default;
  // Throws DeviceError naming what CUDA refuses.
  virtual void launch(const KernelLaunch& launch) = 0;
};

}  // namespace belfry::cuda
