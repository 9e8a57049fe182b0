// Kernels of FusedUpdates: sums of f32 over the towers, applied by one op in registers.
//
//   const FusedSum all_reduce(kAllReduce, is_mean);
//   const FusedKernel momentum(kMomentumUpdate, fused<Momentum>);
//
// GPUs fuse only ops with Op::fused_update_on_gpus.
#pragma once
#include <memory>
#include <vector>

#include "belfry/framework/cuda/kernels/gpu_kernel.h"
#include "belfry/framework/plan/fused_update.h"

namespace belfry::cuda {

// Tensors of a FusedUpdate that one op updates.
struct FusedGroup {
  std::size_t towers;
  bool mean;
  std::vector<FusedTensors::Tensor> tensors;
  std::shared_ptr<const FusedUpdate> update;  // has the members
};

// Registers a collective whose results are canonical sums. `is_mean` says whether a node's are
// means.
struct FusedSum {
  FusedSum(const Op& collective, bool (*is_mean)(const Node&));
};

using FusedPrepare = QueueRun (*)(const FusedGroup&);

struct FusedKernel {
  FusedKernel(const Op& update, FusedPrepare prepare);
};

// Prepares the kernel of a plan node that is a FusedUpdate of one GPU.
QueueRun prepare_fused_kernel(const PlanNode& node);

// The names of ops with Op::fused_update_on_gpus that have no FusedKernel.
std::vector<const char*> ops_without_fused_kernel();

}  // namespace belfry::cuda
