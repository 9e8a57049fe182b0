#include "belfry/framework/cuda/cuda_stream.h"

#include "belfry/framework/cuda/stamp.h"
#include "belfry/framework/node.h"

namespace belfry::cuda {

CudaEvent::CudaEvent(int gpu) {
  const DeviceGuard guard(gpu);
  event_ = make_event(cat("for GPU ", gpu));
}

CudaStream::CudaStream(int gpu) : gpu_(gpu) {
  const DeviceGuard guard(gpu);
  stream_ = make_stream(cat("for GPU ", gpu));
}

std::string CudaStream::context() const {
  return cat("for ", node_ ? node_->describe() : "a step", " on GPU ", gpu_);
}

void CudaStream::copy(void* to, const void* from, std::size_t bytes) {
  if (bytes == 0) return;
  BELFRY_GPU_CALL(cudaMemcpyAsync(to, from, bytes, cudaMemcpyDefault, stream_.get()), context());
}

void CudaStream::record(GpuEvent& event) {
  BELFRY_GPU_CALL(cudaEventRecord(static_cast<CudaEvent&>(event).get(), stream_.get()), context());
}

void CudaStream::wait(const GpuEvent& event) {
  BELFRY_GPU_CALL(cudaStreamWaitEvent(stream_.get(), static_cast<const CudaEvent&>(event).get(), 0),
                  context());
}

void CudaStream::stamp(std::int64_t& counter, std::int64_t value) {
  BELFRY_GPU_CALL(cuda::stamp(stream_.get(), &counter, value), context());
}

void CudaStream::check() const {
  const cudaError_t status = cudaStreamQuery(stream_.get());
  if (status == cudaSuccess || status == cudaErrorNotReady) return;
  fail(status, "a launch before cudaStreamQuery", cat("on GPU ", gpu_));
}

void CudaStream::drain() noexcept {
  cudaStreamSynchronize(stream_.get());  // a failure has been reported, or will be by check()
  cudaGetLastError();
}

}  // namespace belfry::cuda
