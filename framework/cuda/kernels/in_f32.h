// Kernels of f32 for tensors of f16 and bf16.
#pragma once
#include <functional>

#include "belfry/framework/cuda/kernels/gpu_kernel.h"

namespace belfry::cuda {

// What `prepare` makes of the plan with f32 in place of 16 bits, between kernels that convert.
// Empty if that is.
QueueRun in_f32(KernelPlan& plan, const std::function<QueueRun(KernelPlan&)>& prepare);

}  // namespace belfry::cuda
