// Keeps memory that something may use until the process ends.
#pragma once

namespace belfry {

// From now on, no allocator (allocator.h) frees host memory. For processes that are about to end,
// while a library may still read or write tensors.
void keep_host_memory() noexcept;

}  // namespace belfry
