#include "belfry/framework/cuda/handles.h"

namespace belfry::cuda {

DeviceGuard::DeviceGuard(int gpu) {
  BELFRY_GPU_CALL(cudaGetDevice(&before_), "to go to GPU ", gpu);
  BELFRY_GPU_CALL(cudaSetDevice(gpu), "to go to GPU ", gpu);
}

DeviceGuard::~DeviceGuard() { cudaSetDevice(before_); }

Stream make_stream(std::string_view what) {
  cudaStream_t stream = nullptr;
  BELFRY_GPU_CALL(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking), what);
  return Stream(stream);
}

Event make_event(std::string_view what) {
  cudaEvent_t event = nullptr;
  BELFRY_GPU_CALL(cudaEventCreateWithFlags(&event, cudaEventDisableTiming), what);
  return Event(event);
}

DeviceMemory allocate(std::size_t bytes, std::string_view what) {
  void* memory = nullptr;
  BELFRY_GPU_CALL(cudaMalloc(&memory, bytes), bytes, " bytes ", what);
  return DeviceMemory(memory);
}

CudnnHandle make_cudnn(std::string_view what) {
  cudnnHandle_t handle = nullptr;
  BELFRY_GPU_CALL(cudnnCreate(&handle), what);
  return CudnnHandle(handle);
}

CublasLtHandle make_cublas_lt(std::string_view what) {
  cublasLtHandle_t handle = nullptr;
  BELFRY_GPU_CALL(cublasLtCreate(&handle), what);
  return CublasLtHandle(handle);
}

PinnedMemory allocate_pinned(std::size_t bytes, std::string_view what) {
  void* memory = nullptr;
  BELFRY_GPU_CALL(cudaHostAlloc(&memory, bytes, cudaHostAllocPortable | cudaHostAllocMapped), bytes,
                  " bytes ", what);
  return PinnedMemory(memory);
}

}  // namespace belfry::cuda
