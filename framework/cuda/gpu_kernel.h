// Kernels of ops on GPUs. ops/x.cu enters those of ops/x.cc:
//
//   const GpuKernel relu(kRelu, unary<functors::Relu>);
#pragma once
#include <functional>
#include <vector>

#include "belfry/framework/cuda/queue.h"
#include "belfry/framework/kernel.h"
#include "belfry/framework/op.h"

namespace belfry::cuda {

// Enqueues one launch and returns. It allocates nothing, waits for nothing and keeps no pointer.
using GpuRun = std::function<void(const Pointers&, Queue&)>;
// As CpuKernel: touches no device; empty for types that it does not handle.
using GpuPrepare = GpuRun (*)(KernelPlan&);

struct GpuKernel {
  GpuKernel(const Op& op, GpuPrepare prepare);
};

// Null if the op has none.
GpuPrepare find_gpu_kernel(const Op& op);

// The names of the ops without a kernel here, without Op::cpu_only, and that are neither aliases
// nor storage.
std::vector<const char*> ops_without_gpu_kernel();

}  // namespace belfry::cuda
