#include "belfry/framework/cuda/runtime/probe.h"

namespace belfry::cuda {
namespace {

__global__ void probe() {}

}  // namespace

cudaError_t probe_code() {
  cudaFuncAttributes attributes{};
  return cudaFuncGetAttributes(&attributes, probe);
}

}  // namespace belfry::cuda
