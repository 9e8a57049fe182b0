#include "belfry/framework/cuda/runtime/stamp.h"

namespace belfry::cuda {
namespace {

__global__ void store_behind(volatile std::int64_t* counter, std::int64_t value) {
  __threadfence_system();
  *counter = value;
}

__global__ void store_word(std::uint64_t* word, std::uint64_t value) { *word = value; }

}  // namespace

cudaError_t stamp(cudaStream_t stream, std::int64_t* counter, std::int64_t value) {
  volatile std::int64_t* target = counter;
  void* arguments[] = {&target, &value};
  return cudaLaunchKernel(store_behind, dim3(1), dim3(1), arguments, 0, stream);
}

cudaError_t store(cudaStream_t stream, std::uint64_t* word, std::uint64_t value) {
  void* arguments[] = {&word, &value};
  return cudaLaunchKernel(store_word, dim3(1), dim3(1), arguments, 0, stream);
}

}  // namespace belfry::cuda
