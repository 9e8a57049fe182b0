// Small copies, many in a launch.
#pragma once
#include <span>

#include "belfry/framework/cuda/kernels/queue.h"

namespace belfry::cuda {

// bytes[i] from from[i] to to[i], in as few launches as there is room for in their parameters. All
// is memory that the GPU reaches: its own, that of peers, or pinned.
void copy_each(KernelQueue& queue, std::span<void* const> to, std::span<const void* const> from,
               std::span<const std::size_t> bytes);

}  // namespace belfry::cuda
