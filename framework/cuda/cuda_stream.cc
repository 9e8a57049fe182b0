#include "belfry/framework/cuda/cuda_stream.h"

#include "belfry/framework/cuda/stamp.h"
#include "belfry/framework/node.h"

namespace belfry::cuda {

CudaEvent::CudaEvent(int gpu) {
  const DeviceGuard guard(gpu);
  event_ = make_event(cat("for GPU ", gpu));
}

CudaStream::CudaStream(int gpu) : gpu_(gpu), queue_(cat("GPU ", gpu)) {}

void CudaStream::copy(void* to, const void* from, std::size_t bytes) {
  if (bytes == 0) return;
  BELFRY_GPU_CALL(cudaMemcpyAsync(to, from, bytes, cudaMemcpyDefault, queue_.stream()), where());
}

void CudaStream::record(GpuEvent& event) {
  BELFRY_GPU_CALL(cudaEventRecord(static_cast<CudaEvent&>(event).get(), queue_.stream()), where());
}

void CudaStream::wait(const GpuEvent& event) {
  BELFRY_GPU_CALL(
      cudaStreamWaitEvent(queue_.stream(), static_cast<const CudaEvent&>(event).get(), 0), where());
}

void CudaStream::stamp(std::int64_t& counter, std::int64_t value) {
  queue_.tell_faults();
  BELFRY_GPU_CALL(cuda::stamp(queue_.stream(), &counter, value), where());
}

void CudaStream::check() const {
  const cudaError_t status = cudaStreamQuery(queue_.stream());
  if (status == cudaSuccess || status == cudaErrorNotReady) return;
  fail(status, "a launch before cudaStreamQuery", cat("on GPU ", gpu_));
}

void CudaStream::drain() noexcept {
  use();
  cudaStreamSynchronize(queue_.stream());  // a failure has been reported, or will be by check()
  queue_.forget_faults();
  cudaGetLastError();
}

}  // namespace belfry::cuda
