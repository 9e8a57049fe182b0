// A GPU reports its progress to the host on its own.
#pragma once
#include <cstdint>

#include <cuda_runtime_api.h>

namespace belfry::cuda {

// Enqueues a store to `counter`, in mapped host memory, after all work of the stream. A thread that
// sees the value sees everything that this work wrote.
cudaError_t stamp(cudaStream_t stream, std::int64_t* counter, std::int64_t value);

// Enqueues a store to memory of the stream's GPU.
cudaError_t store(cudaStream_t stream, std::uint64_t* word, std::uint64_t value);

}  // namespace belfry::cuda
