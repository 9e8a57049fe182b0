#include "belfry/framework/cuda/runtime/cuda_stream.h"

#include "belfry/framework/base/log.h"
#include "belfry/framework/base/text.h"
#include "belfry/framework/cuda/runtime/copies.h"
#include "belfry/framework/cuda/runtime/cuda_segment.h"
#include "belfry/framework/cuda/runtime/stamp.h"
#include "belfry/framework/graph/node.h"

namespace belfry::cuda {

void StreamRun::operator()(const KernelPointers& p, GpuStream& stream) const {
  run(p, static_cast<CudaStream&>(stream).queue());
}

CudaStream::CudaStream(int gpu, bool is_urgent) : gpu_(gpu), queue_(cat("GPU ", gpu), is_urgent) {}

// Copies and parts of ranks are not a StreamRun, and need nothing.
void CudaStream::get_ready(const GpuRun& run) {
  const auto* const of_module = run.target<StreamRun>();
  if (!of_module) return;
  const DeviceGuard guard(gpu_);
  queue_.get_ready(of_module->needs);
}

void CudaStream::copy(void* to, const void* from, std::size_t bytes) {
  if (bytes == 0) return;
  BELFRY_GPU_CALL(cudaMemcpyAsync(to, from, bytes, cudaMemcpyDefault, queue_.stream()),
                  queue_.where());
}

void CudaStream::copy_each(std::span<void* const> to, std::span<const void* const> from,
                           std::span<const std::size_t> bytes) {
  cuda::copy_each(queue_, to, from, bytes);
}

void CudaStream::record(GpuEvent& event) {
  BELFRY_GPU_CALL(cudaEventRecord(static_cast<CudaEvent&>(event).get(), queue_.stream()),
                  queue_.where());
}

void CudaStream::wait(const GpuEvent& event) {
  BELFRY_GPU_CALL(
      cudaStreamWaitEvent(queue_.stream(), static_cast<const CudaEvent&>(event).get(), 0),
      queue_.where());
}

void CudaStream::stamp(std::int64_t& counter, std::int64_t value) {
  queue_.tell_faults();
  BELFRY_GPU_CALL(cuda::stamp(queue_.stream(), &counter, value), queue_.where());
}

void CudaStream::set_step(GpuStream& kernels, std::uint64_t step) {
  std::uint64_t* const word = static_cast<CudaStream&>(kernels).queue_.step_word();
  if (!word) return;  // no kernel that could read it has been made ready there
  BELFRY_GPU_CALL(cuda::store(queue_.stream(), word, step), queue_.where());
}

// ThreadLocal: calls of other threads do not end the capture.
void CudaStream::begin_capture(const Node& first, const Node& last) {
  captured_ = segment_text(first, last, cat("GPU ", gpu_));
  BELFRY_GPU_CALL(cudaStreamBeginCapture(queue_.stream(), cudaStreamCaptureModeThreadLocal),
                  captured_);
}

std::unique_ptr<GpuSegment> CudaStream::end_capture() {
  cudaGraph_t graph = nullptr;
  BELFRY_GPU_CALL(cudaStreamEndCapture(queue_.stream(), &graph), captured_);
  const CapturedGraph captured(graph);
  try {
    return std::make_unique<CudaSegment>(graph, queue_.stream(), captured_);
  } catch (const DeviceError& error) {  // of a GPU that has failed, later calls throw, too
    log_warning(error.what(), "; its work is launched kernel by kernel, which takes longer");
    return nullptr;
  }
}

// Even a failed capture must be ended. Ending one twice does nothing.
void CudaStream::abandon_capture() noexcept {
  cudaGraph_t graph = nullptr;
  cudaStreamEndCapture(queue_.stream(), &graph);
  if (graph) cudaGraphDestroy(graph);
  cudaGetLastError();
}

void CudaStream::launch(const GpuSegment& segment) {
  static_cast<const CudaSegment&>(segment).launch(queue_.stream());
}

// Called by a waiting thread: a worker of the host, which has no GPU, or another GPU's thread.
void CudaStream::check() const {
  const DeviceGuard guard(gpu_);
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
