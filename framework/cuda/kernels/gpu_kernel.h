// Kernels of ops on GPUs. ops/x.cu enters those of ops/x.cc:
//
//   const GpuKernel relu(kRelu, unary<functors::Relu>);
//
// They do all the work of a node: only those split by elements look at ranges.
#pragma once
#include <vector>

#include "belfry/framework/cuda/kernels/algorithms.h"
#include "belfry/framework/cuda/kernels/queue.h"
#include "belfry/framework/graph/kernel.h"
#include "belfry/framework/graph/op.h"

namespace belfry::cuda {

// As CpuKernel: touches no device; empty for types that it does not handle.
using GpuPrepare = QueueRun (*)(KernelPlan&);
// Of ops that a library computes.
using GpuLibraryPrepare = QueueRun (*)(KernelPlan&, Algorithms&);

inline constexpr bool kTakesHalf = true;

struct GpuKernel {
  // `takes_half`: tensors of f16 and bf16, as they are.
  GpuKernel(const Op& op, GpuPrepare prepare, bool takes_half = false);
  // Of f16 and bf16 it is asked.
  GpuKernel(const Op& op, GpuLibraryPrepare prepare);
};

// Of KernelPlan::op(). Empty if it has none, or none for these types. One that does not take f16
// and bf16 is run on f32, which tensors of these types are made of and rounded to.
QueueRun prepare_gpu_kernel(KernelPlan& plan, Algorithms& algorithms);

// The names of the ops without a kernel here, without Op::cpu_only, and that are neither aliases
// nor storage nor messages.
std::vector<const char*> ops_without_gpu_kernel();

}  // namespace belfry::cuda
