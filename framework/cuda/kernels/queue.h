// The queue into which kernels of the module put their work. Kernels call CUDA and its libraries
// only through this class, so that tests can stand in for a GPU.
#pragma once
#include <functional>
#include <memory>

#include "belfry/framework/cuda/kernels/block.h"
#include "belfry/framework/cuda/kernels/calls.h"
#include "belfry/framework/cuda/kernels/fault.h"

namespace belfry {
class KernelPointers;
}

namespace belfry::cuda {

struct KernelLaunch {
  const void* function;  // __global__, of one parameter
  const void* kernel;    // that parameter: the functor
  Grid grid;
  void (*on_host)(const void* kernel, Grid grid, HostOrder order);  // the same on the host
};

// One stream of one GPU with the handles of libraries. For one thread at a time. All functions
// throw DeviceError naming what CUDA or the library refuses.
class KernelQueue {
 public:
  virtual ~KernelQueue() = default;
  virtual void launch(const KernelLaunch& launch) = 0;
  virtual void matmul(const MatMulCall& call) = 0;
  virtual void convolve(const ConvolutionCall& call) = 0;
  virtual void pool(const PoolingCall& call) = 0;
  virtual void attend(const AttentionCall& call) = 0;
  virtual void recur(const RecurrenceCall& call) = 0;
  virtual void recur_back(const RecurrenceGradCall& call) = 0;
  // Where a kernel records input about which `refusal` throws after the run. A refusal keeps its
  // place from run to run as long as something holds the refusal.
  virtual Fault* fault(const std::shared_ptr<const Refusal>& refusal) = 0;
  // The address from which running kernels read the step, as KernelPointers::step().
  virtual const std::uint64_t* step() const = 0;
};

// The part of a GpuRun that enqueues work in its stream.
using QueueRun = std::function<void(const KernelPointers&, KernelQueue&)>;

}  // namespace belfry::cuda
