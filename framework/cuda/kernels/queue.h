// Where kernels of the module enqueue their work. All that kernels ask of CUDA and its libraries
// goes through this class, so that tests can stand in for a GPU.
#pragma once
#include <functional>
#include <memory>

#include "belfry/framework/cuda/kernels/block.h"
#include "belfry/framework/cuda/kernels/calls.h"
#include "belfry/framework/cuda/kernels/fault.h"

namespace belfry {
class Pointers;
}

namespace belfry::cuda {

struct KernelLaunch {
  const void* function;  // __global__, of one parameter
  const void* kernel;    // that parameter: the functor
  Grid grid;
  void (*on_host)(const void* kernel, Grid grid);  // does the same
};

// One stream of one GPU with the handles of libraries. Used by one thread at a time. All throw
// DeviceError naming what CUDA or the library refuses.
class KernelQueue {
 public:
  virtual ~KernelQueue() = default;
  virtual void launch(const KernelLaunch& launch) = 0;
  virtual void matmul(const MatMulCall& call) = 0;
  virtual void convolve(const ConvolutionCall& call) = 0;
  virtual void pool(const PoolingCall& call) = 0;
  virtual void attend(const AttentionCall& call) = 0;
  // Where kernels note what `refusal` will throw once they have run: the same place for the same
  // one in every run, until nothing holds it any more.
  virtual Fault* fault(const std::shared_ptr<const Refusal>& refusal) = 0;
  // Where kernels read Pointers::step() when they run.
  virtual const std::uint64_t* step() const = 0;
};

// A GpuRun, by what it enqueues in its stream.
using QueueRun = std::function<void(const Pointers&, KernelQueue&)>;

}  // namespace belfry::cuda
