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

// Pinned memory for tensors (TensorMemory) that are fed to GPUs: CompiledStep::stage() does not
// copy them on the host, but shares them until the run with them has ended. The backend outlives
// it.
std::shared_ptr<Allocator> feed_memory(const GpuBackend& backend);
// Whether it is the beginning of memory that such an allocator has given out.
bool is_feed_memory(const GpuBackend& backend, const void* memory);

}  // namespace belfry
