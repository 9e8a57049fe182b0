// The memory of devices in sessions that drive GPUs.
#pragma once
#include <memory>

#include "belfry/framework/base/allocator.h"
#include "belfry/framework/device/gpu_backend.h"

namespace belfry {

// Memory of a physical GPU. The backend outlives it.
std::unique_ptr<MemorySource> gpu_memory(const GpuBackend& backend, int gpu);

// Pinned host memory: GPUs copy to and from it without waiting.
std::unique_ptr<MemorySource> pinned_memory(const GpuBackend& backend);

}  // namespace belfry
