#include "belfry/framework/cuda/runtime/driving_backend.h"

#include <algorithm>
#include <cmath>
#include <cstring>

#include "belfry/framework/base/require.h"
#include "belfry/framework/base/text.h"
#include "belfry/framework/cuda/kernels/fused_kernel.h"
#include "belfry/framework/cuda/kernels/gpu_kernel.h"
#include "belfry/framework/cuda/kernels/pitched_kernel.h"
#include "belfry/framework/cuda/kernels/variants.h"
#include "belfry/framework/cuda/runtime/algorithm_provider.h"
#include "belfry/framework/cuda/runtime/communicators.h"
#include "belfry/framework/cuda/runtime/cuda_stream.h"
#include "belfry/framework/cuda/runtime/gpu_algorithms.h"

namespace belfry::cuda {
namespace {

const Variant padded_rows("matmul.padded_rows");

// The GPU whose memory the address is in; -1 for host memory. `otherwise`: if CUDA does not say.
int gpu_of(const void* address, int otherwise) {
  cudaPointerAttributes attributes{};
  if (cudaPointerGetAttributes(&attributes, address) != cudaSuccess) {
    cudaGetLastError();
    return otherwise;
  }
  return attributes.type == cudaMemoryTypeDevice ? attributes.device : -1;
}

// Records which libraries a kernel needs.
class NotedNeeds final : public Algorithms {
 public:
  explicit NotedNeeds(Algorithms& all) : all_(all) {}

  MatMulAlgorithm matmul(const MatMul& matmul) override {
    needs.cublas_lt = true;
    return all_.matmul(matmul);
  }
  std::optional<CudnnAlgorithm> convolution(const Convolution& convolution) override {
    const auto algorithm = all_.convolution(convolution);
    needs.cudnn |= algorithm.has_value();
    return algorithm;
  }
  bool pooling(const Pooling& pooling) override {
    const bool pools = all_.pooling(pooling);
    needs.cudnn |= pools;
    return pools;
  }
  std::optional<CudnnAlgorithm> attention(const Attention& attention,
                                          const MakeOwnKernel& ours) override {
    const auto algorithm = all_.attention(attention, ours);
    needs.cudnn |= algorithm.has_value();
    return algorithm;
  }
  std::optional<CudnnAlgorithm> recurrence(const Recurrence& recurrence,
                                           const MakeRecurrence& make) override {
    const auto algorithm = all_.recurrence(recurrence, make);
    needs.cudnn |= algorithm.has_value();
    return algorithm;
  }

  Needs needs;

 private:
  Algorithms& all_;
};

}  // namespace

struct DrivingBackend::Chooser {
  Chooser(int gpu, const std::string& name, AlgorithmTable& table, bool deterministic)
      : source(cat("GPU ", gpu), name), provider(source, table, {.deterministic = deterministic}) {}

  GpuAlgorithms source;
  AlgorithmProvider provider;
};

DrivingBackend::DrivingBackend() = default;
DrivingBackend::~DrivingBackend() = default;

void DrivingBackend::need(int gpu) const {
  require(gpu >= 0 && gpu < count(), "there is no GPU ", gpu, "; this machine has ", count());
}

DeviceGuard DrivingBackend::enter(int gpu) const {
  need(gpu);
  entered_.store(gpu, std::memory_order_relaxed);
  return DeviceGuard(gpu);
}

void* DrivingBackend::allocate(int gpu, std::size_t bytes) const {
  const DeviceGuard guard = enter(gpu);
  return cuda::allocate(bytes, cat("on GPU ", gpu)).release();
}

void DrivingBackend::deallocate(int gpu, void* memory) const noexcept {
  try {
    const DeviceGuard guard(gpu);
    cudaFree(memory);
  } catch (const Error&) {  // the GPU has failed, which was or will be reported
  }
}

void* DrivingBackend::allocate_pinned(std::size_t bytes) const {
  const DeviceGuard guard(entered_);
  return cuda::allocate_pinned(bytes, "of the host").release();
}

void DrivingBackend::deallocate_pinned(void* memory) const noexcept {
  try {
    const DeviceGuard guard(entered_);
    cudaFreeHost(memory);
  } catch (const Error&) {  // as above
  }
}

// Copies in this thread's own stream, so that other streams continue meanwhile. Asking where an
// address is makes a context on the current GPU, so that must be one that has a context.
void DrivingBackend::copy(void* to, const void* from, std::size_t bytes) const {
  const int known = entered_;
  const DeviceGuard entered(known);
  const int there = gpu_of(to, known);
  const int gpu = there >= 0 ? there : gpu_of(from, known);
  if (gpu < 0) {
    std::memcpy(to, from, bytes);
    return;
  }
  const DeviceGuard guard(gpu);
  BELFRY_GPU_CALL(cudaMemcpyAsync(to, from, bytes, cudaMemcpyDefault, cudaStreamPerThread), "for ",
                  bytes, " bytes on GPU ", gpu);
  BELFRY_GPU_CALL(cudaStreamSynchronize(cudaStreamPerThread), "after a copy of ", bytes,
                  " bytes on GPU ", gpu);
}

std::unique_ptr<GpuStream> DrivingBackend::make_stream(int gpu, std::span<const int> peers,
                                                       bool is_urgent) const {
  const DeviceGuard guard = enter(gpu);
  for (const int peer : peers) {
    if (peer == gpu || !peer_access(gpu, peer)) continue;
    const cudaError_t status = cudaDeviceEnablePeerAccess(peer, 0);
    if (status != cudaSuccess && status != cudaErrorPeerAccessAlreadyEnabled)
      fail(status, "cudaDeviceEnablePeerAccess", cat("from GPU ", gpu, " to GPU ", peer));
    cudaGetLastError();
  }
  return std::make_unique<CudaStream>(gpu, is_urgent);
}

std::unique_ptr<GpuEvent> DrivingBackend::make_event(int gpu) const {
  const DeviceGuard guard = enter(gpu);
  return std::make_unique<CudaEvent>(cuda::make_event(cat("for GPU ", gpu)));
}

std::unique_ptr<GpuEvent> DrivingBackend::make_timer(int gpu) const {
  const DeviceGuard guard = enter(gpu);
  return std::make_unique<CudaEvent>(cuda::make_timer(cat("for GPU ", gpu)));
}

std::chrono::nanoseconds DrivingBackend::elapsed(const GpuEvent& from, const GpuEvent& to) const {
  float milliseconds = 0;
  BELFRY_GPU_CALL(cudaEventElapsedTime(&milliseconds, static_cast<const CudaEvent&>(from).get(),
                                       static_cast<const CudaEvent&>(to).get()),
                  "for a trace");
  return std::chrono::nanoseconds(std::llround(double{milliseconds} * 1e6));
}

void DrivingBackend::use(int gpu) const {
  BELFRY_GPU_CALL(cudaSetDevice(gpu), "to enqueue work of GPU ", gpu);
}

std::string DrivingBackend::communicator_id() const { return new_id(nccl_library()); }

std::unique_ptr<GpuCommunicators> DrivingBackend::make_communicators(
    std::span<const int> gpus, std::chrono::duration<double> limit, const RankWorld& world,
    const std::atomic<bool>& failed) const {
  for (const int gpu : gpus) need(gpu);
  const DeviceGuard guard(gpus[0]);
  return std::make_unique<Communicators>(
      nccl_library(), gpus, limit, [this](int gpu) { use(gpu); }, world, &failed);
}

GpuRun DrivingBackend::prepare(int gpu, KernelPlan& plan, bool deterministic,
                               std::span<const std::int64_t> pitches) const {
  const DeviceGuard guard = enter(gpu);
  const std::lock_guard lock(choosing_);
  std::unique_ptr<Chooser>& chooser = choosers_[{gpu, deterministic}];
  if (!chooser)
    chooser = std::make_unique<Chooser>(gpu, info(gpu).name,
                                        deterministic ? deterministic_ : measured_, deterministic);
  chooser->source.serve(plan.node());
  NotedNeeds algorithms(chooser->provider);
  algorithms.needs.memory = !plan.op().collective;  // sums refuse no input
  QueueRun run = prepare_gpu_kernel(plan, algorithms, {pitches});
  if (!run) return {};
  return StreamRun{std::move(run), algorithms.needs};
}

bool DrivingBackend::takes_pitches(const Op& op) const {
  return padded_rows.on() && cuda::takes_pitches(op);
}

GpuRun DrivingBackend::prepare_fused(int gpu, const PlanGraph&, const PlanNode& node) const {
  need(gpu);
  return StreamRun{prepare_fused_kernel(node)};
}

std::string DrivingBackend::algorithms(bool deterministic) const {
  return (deterministic ? deterministic_ : measured_).str();
}

void DrivingBackend::give_algorithms(bool deterministic, std::string_view text,
                                     const std::string& path) const {
  (deterministic ? deterministic_ : measured_).read(text, path);
}

}  // namespace belfry::cuda
