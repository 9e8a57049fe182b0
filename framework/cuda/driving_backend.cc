#include "belfry/framework/cuda/driving_backend.h"

#include "belfry/framework/cuda/algorithm_provider.h"
#include "belfry/framework/cuda/cuda_stream.h"
#include "belfry/framework/cuda/fused_kernel.h"
#include "belfry/framework/cuda/gpu_algorithms.h"
#include "belfry/framework/cuda/gpu_kernel.h"

namespace belfry::cuda {
namespace {

// Null if the memory is not enough.
void* checked(cudaError_t status, void* memory, std::string_view call, std::size_t bytes) {
  if (status == cudaSuccess) return memory;
  if (status != cudaErrorMemoryAllocation) fail(status, call, cat("for ", bytes, " bytes"));
  cudaGetLastError();
  return nullptr;
}

GpuRun in_stream(QueueRun run) {
  return [run = std::move(run)](const Pointers& p, GpuStream& stream) {
    run(p, static_cast<CudaStream&>(stream).queue());
  };
}

}  // namespace

struct DrivingBackend::Chooser {
  Chooser(int gpu, const std::string& name, AlgorithmTable& table)
      : source(cat("GPU ", gpu), name), provider(source, table, {.deterministic = true}) {}

  GpuAlgorithms source;
  AlgorithmProvider provider;
};

DrivingBackend::DrivingBackend() = default;
DrivingBackend::~DrivingBackend() = default;

void DrivingBackend::need(int gpu) const {
  require(gpu >= 0 && gpu < count(), "there is no GPU ", gpu, "; this machine has ", count());
}

void* DrivingBackend::allocate(int gpu, std::size_t bytes) const {
  need(gpu);
  const DeviceGuard guard(gpu);
  void* memory = nullptr;
  const cudaError_t status = cudaMalloc(&memory, bytes);
  return checked(status, memory, "cudaMalloc", bytes);
}

void DrivingBackend::deallocate(int, void* memory) const noexcept { cudaFree(memory); }

void* DrivingBackend::allocate_pinned(std::size_t bytes) const {
  void* memory = nullptr;
  const cudaError_t status =
      cudaHostAlloc(&memory, bytes, cudaHostAllocPortable | cudaHostAllocMapped);
  return checked(status, memory, "cudaHostAlloc", bytes);
}

void DrivingBackend::deallocate_pinned(void* memory) const noexcept { cudaFreeHost(memory); }

// cudaMemcpy returns before copies within GPUs, and small ones to them, have been made.
void DrivingBackend::copy(void* to, const void* from, std::size_t bytes) const {
  BELFRY_GPU_CALL(cudaMemcpy(to, from, bytes, cudaMemcpyDefault), "for ", bytes, " bytes");
  BELFRY_GPU_CALL(cudaStreamSynchronize(cudaStreamLegacy), "after a copy of ", bytes, " bytes");
}

std::unique_ptr<GpuStream> DrivingBackend::make_stream(int gpu) const {
  need(gpu);
  const DeviceGuard guard(gpu);
  for (int other = 0; other < count(); ++other) {
    if (other == gpu || !peer_access(gpu, other)) continue;
    const cudaError_t status = cudaDeviceEnablePeerAccess(other, 0);
    if (status != cudaSuccess && status != cudaErrorPeerAccessAlreadyEnabled)
      fail(status, "cudaDeviceEnablePeerAccess", cat("from GPU ", gpu, " to GPU ", other));
    cudaGetLastError();
  }
  return std::make_unique<CudaStream>(gpu);
}

std::unique_ptr<GpuEvent> DrivingBackend::make_event(int gpu) const {
  need(gpu);
  return std::make_unique<CudaEvent>(gpu);
}

void DrivingBackend::use(int gpu) const {
  BELFRY_GPU_CALL(cudaSetDevice(gpu), "to enqueue work of GPU ", gpu);
}

GpuRun DrivingBackend::prepare(int gpu, KernelPlan& plan) const {
  need(gpu);
  const DeviceGuard guard(gpu);
  const std::lock_guard lock(choosing_);
  std::unique_ptr<Chooser>& chooser = choosers_[gpu];
  if (!chooser) chooser = std::make_unique<Chooser>(gpu, info(gpu).name, table_);
  chooser->source.serve(plan.node());
  QueueRun run = prepare_gpu_kernel(plan, chooser->provider);
  if (!run) return {};
  return in_stream(std::move(run));
}

GpuRun DrivingBackend::prepare_fused(int gpu, const Plan&, const PlanNode& node) const {
  need(gpu);
  return in_stream(prepare_fused_kernel(node));
}

}  // namespace belfry::cuda
