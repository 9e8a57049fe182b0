#include "belfry/framework/cuda/runtime/handles.h"

#include "belfry/framework/base/text.h"

namespace belfry::cuda {
namespace {

// Whether this thread has a context. The runtime API cannot tell.
bool has_context() {
  using GetCurrent = int(void**);  // cuCtxGetCurrent
  static const auto get_current = [] {
    void* function = nullptr;
    cudaDriverEntryPointQueryResult found{};
#if CUDART_VERSION >= 12050
    cudaGetDriverEntryPointByVersion("cuCtxGetCurrent", &function, 12000, cudaEnableDefault,
                                     &found);
#else
    cudaGetDriverEntryPoint("cuCtxGetCurrent", &function, cudaEnableDefault, &found);
#endif
    return reinterpret_cast<GetCurrent*>(function);
  }();
  void* context = nullptr;
  return !get_current || get_current(&context) != 0 || context;
}

// False if memory was short; throws for other errors.
bool got(cudaError_t status, std::string_view call, std::size_t bytes, std::string_view what) {
  if (status == cudaSuccess) return true;
  if (status != cudaErrorMemoryAllocation) fail(status, call, cat(bytes, " bytes ", what));
  cudaGetLastError();
  return false;
}

Event make_event_with(unsigned flags, std::string_view what) {
  cudaEvent_t event = nullptr;
  BELFRY_GPU_CALL(cudaEventCreateWithFlags(&event, flags), what);
  return Event(event);
}

}  // namespace

DeviceGuard::DeviceGuard(int gpu) {
  BELFRY_GPU_CALL(cudaGetDevice(&before_), "to go to GPU ", gpu);
  if (!has_context()) before_ = -1;
  BELFRY_GPU_CALL(cudaSetDevice(gpu), "to go to GPU ", gpu);
}

DeviceGuard::~DeviceGuard() {
  if (before_ >= 0) cudaSetDevice(before_);
}

Stream make_stream(std::string_view what, bool is_urgent) {
  int lowest = 0, highest = 0;
  BELFRY_GPU_CALL(cudaDeviceGetStreamPriorityRange(&lowest, &highest), what);
  cudaStream_t stream = nullptr;
  BELFRY_GPU_CALL(
      cudaStreamCreateWithPriority(&stream, cudaStreamNonBlocking, is_urgent ? highest : lowest),
      what);
  return Stream(stream);
}

Event make_event(std::string_view what) { return make_event_with(cudaEventDisableTiming, what); }

Event make_timer(std::string_view what) { return make_event_with(cudaEventDefault, what); }

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

DeviceMemory allocate(std::size_t bytes, std::string_view what) {
  void* memory = nullptr;
  return DeviceMemory(got(cudaMalloc(&memory, bytes), "cudaMalloc", bytes, what) ? memory
                                                                                 : nullptr);
}

PinnedMemory allocate_pinned(std::size_t bytes, std::string_view what) {
  void* memory = nullptr;
  const cudaError_t status =
      cudaHostAlloc(&memory, bytes, cudaHostAllocPortable | cudaHostAllocMapped);
  return PinnedMemory(got(status, "cudaHostAlloc", bytes, what) ? memory : nullptr);
}

}  // namespace belfry::cuda
