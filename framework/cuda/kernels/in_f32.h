// Kernels of f32 for tensors of f16 and bf16.
#pragma once
#include <functional>

#include "belfry/framework/cuda/kernels/gpu_kernel.h"

namespace belfry::cuda {

// Prepares the plan with f32 in place of 16-bit types; kernels before and after convert. Tensors of
// f32 keep their pitches. Empty if `prepare` gives nothing.
QueueRun in_f32(KernelPlan& plan, std::span<const std::int64_t> pitches,
                const std::function<QueueRun(KernelPlan&)>& prepare);

}  // namespace belfry::cuda
