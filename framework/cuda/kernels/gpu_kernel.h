// Kernels of ops on GPUs. ops/x.cu registers those of ops/x.cc:
//
//   const GpuKernel relu(kRelu, unary<functors::Relu>);
//
// A kernel does all the work of a node. Only kernels that are split by elements look at ranges.
#pragma once
#include <vector>

#include "belfry/framework/cuda/kernels/algorithms.h"
#include "belfry/framework/cuda/kernels/queue.h"
#include "belfry/framework/graph/kernel.h"
#include "belfry/framework/graph/op.h"

namespace belfry::cuda {

// Touches no device, as in CpuKernel; returns nothing for types that it does not handle.
using GpuPrepare = QueueRun (*)(KernelPlan&);
// For ops that a library computes.
using GpuLibraryPrepare = QueueRun (*)(KernelPlan&, Algorithms&);

inline constexpr bool kTakesHalf = true;

struct GpuKernel {
  // `takes_half`: the kernel takes tensors of f16 and bf16 directly.
  GpuKernel(const Op& op, GpuPrepare prepare, bool takes_half = false);
  // `prepare` is also called for f16 and bf16.
  GpuKernel(const Op& op, GpuLibraryPrepare prepare);
};

// Prepares the kernel of KernelPlan::op(); empty if it has none for these types. If the kernel does
// not take f16 and bf16, it runs on f32 between conversions (in_f32.h).
QueueRun prepare_gpu_kernel(KernelPlan& plan, Algorithms& algorithms);

// The names of ops that need a kernel here and have none. Ops with Op::cpu_only, aliases, storage,
// composites and messages need none.
std::vector<const char*> ops_without_gpu_kernel();

// The ops whose kernel here takes f16 and bf16 directly, in order of name.
std::vector<const Op*> ops_that_take_half();

}  // namespace belfry::cuda
