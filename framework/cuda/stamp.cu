#include "belfry/framework/cuda/stamp.h"

namespace belfry::cuda {
namespace {

__global__ void store(volatile std::int64_t* counter, std::int64_t value) {
  __threadfence_system();
  *counter = value;
}

}  // namespace

cudaError_t stamp(cudaStream_t stream, std::int64_t* counter, std::int64_t value) {
  volatile std::int64_t* target = counter;
  void* arguments[] = {&target, &value};
  return cudaLaunchKernel(store, dim3(1), dim3(1), arguments, 0, stream);
}

}  // namespace belfry::cuda
