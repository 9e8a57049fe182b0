// Small copies, many in a launch.
#pragma once
#include <span>

#include "belfry/framework/cuda/kernels/queue.h"

namespace belfry::cuda {

// Copies bytes[i] bytes from from[i] to to[i], in as few launches as their parameters allow. The
// GPU must reach all addresses: its own memory, peers' memory, or pinned memory.
void copy_each(KernelQueue& queue, std::span<void* const> to, std::span<const void* const> from,
               std::span<const std::size_t> bytes);

}  // namespace belfry::cuda
