// Kernels of FusedUpdates: sums of f32 over the towers, applied by one op in registers.
//
//   const FusedKernel momentum(kMomentumUpdate, fused<Momentum>);
//
// Only ops with Op::fuses_on_gpus are fused there.
#pragma once
#include <vector>

#include "belfry/framework/cuda/gpu_kernel.h"
#include "belfry/framework/plan.h"

namespace belfry::cuda {

// Tensors of a FusedUpdate that are all updated by one op.
struct FusedGroup {
  struct Tensor {
    std::size_t first_input;  // of `towers` inputs of the FusedUpdate: what is summed
    std::int64_t elements;
    std::vector<const Fusion::Update*> updates;
  };
  std::size_t towers;
  bool mean;
  std::vector<Tensor> tensors;
  std::shared_ptr<const Fusion> fusion;  // has the updates
};

using FusedPrepare = QueueRun (*)(const FusedGroup&);

struct FusedKernel {
  FusedKernel(const Op& update, FusedPrepare prepare);
};

// Of a plan node that is a FusedUpdate of one GPU.
QueueRun prepare_fused_kernel(const PlanNode& node);

// The names of the updates with Op::fuses_on_gpus and without a kernel here.
std::vector<const char*> updates_without_fused_kernel();

}  // namespace belfry::cuda
