#include "belfry/framework/cuda/runtime/stream_queue.h"

#include <algorithm>
#include <cstring>
#include <limits>
#include <utility>

#include "belfry/framework/base/require.h"
#include "belfry/framework/run/failed_launch.h"

namespace belfry::cuda {
namespace {

constexpr int kNoFault = 0xff;  // in each byte of Fault::kNone

}  // namespace

StreamQueue::StreamQueue(std::string device, bool is_urgent)
    : where_{.device = std::move(device)},
      stream_(make_stream(where_.str(), is_urgent)),
      dnn_(stream()) {}

void StreamQueue::get_ready(Needs needs) {
  if (needs.memory && !faults_) make_memory();
  if (needs.cublas_lt) blas_.get_ready(where_);
  if (needs.cudnn) dnn_.get_ready(where_);
}

// Uses this thread's own stream, because the queue's may be captured meanwhile.
void StreamQueue::make_memory() {
  DeviceMemory faults = allocate(kFaultBytes, where_.str());
  PinnedMemory told = allocate_pinned(kFaultBytes, where_.str());
  DeviceMemory step = allocate(sizeof(std::uint64_t), where_.str());
  require<OutOfMemory>(faults && told && step, "no memory for what kernels refuse, ", where_);
  std::memset(told.get(), kNoFault, kFaultBytes);
  BELFRY_GPU_CALL(cudaMemsetAsync(faults.get(), kNoFault, kFaultBytes, cudaStreamPerThread),
                  where_);
  BELFRY_GPU_CALL(cudaStreamSynchronize(cudaStreamPerThread), where_);
  told_ = std::move(told);
  step_ = std::move(step);
  faults_ = std::move(faults);
}

Fault* StreamQueue::fault(const std::shared_ptr<const Refusal>& refusal) {
  get_ready({});  // it is, unless get_ready() was given another function than the one that runs
  auto* const faults = static_cast<Fault*>(faults_.get());
  if (const auto found = fault_of_.find(refusal); found != fault_of_.end())
    return faults + found->second.place;
  std::size_t place = fault_of_.size();
  const auto gone = std::ranges::find_if(fault_of_, [](auto& of) { return of.first.expired(); });
  if (gone != fault_of_.end()) {
    place = gone->second.place;
    fault_of_.erase(gone);
  }
  require<InternalError>(place < kMostFaults, "steps with more than ", kMostFaults,
                         " kernels that may refuse their input, ", where_);
  fault_of_.emplace(refusal, Noted{place, where_.node});
  return faults + place;
}

void StreamQueue::tell_faults() {
  if (fault_of_.empty()) return;
  BELFRY_GPU_CALL(cudaMemcpyAsync(told_.get(), faults_.get(), fault_of_.size() * sizeof(Fault),
                                  cudaMemcpyDeviceToHost, stream()),
                  where_);
}

void StreamQueue::raise_fault() const {
  const auto* const told = static_cast<const Fault*>(told_.get());
  std::shared_ptr<const Refusal> first;
  Noted noted{kMostFaults, nullptr};
  for (const auto& [of, at] : fault_of_)
    if (told[at.place].first != Fault::kNone && at.place < noted.place && !of.expired()) {
      first = of.lock();
      noted = at;
    }
  if (!first) return;
  try {
    first->raise(told[noted.place].element(), told[noted.place].value());
  } catch (...) {
    if (!noted.node) throw;
    rethrow_with_launch(*noted.node, {});
  }
}

void StreamQueue::forget_faults() noexcept {
  if (!faults_) return;
  std::memset(told_.get(), kNoFault, kFaultBytes);
  cudaMemsetAsync(faults_.get(), kNoFault, kFaultBytes, stream());
}

void check_grid(Grid grid, const Where& where) {
  require<DeviceError>(grid.blocks <= std::numeric_limits<std::int32_t>::max(), "a kernel of ",
                       grid.blocks, " blocks is more than CUDA launches, ", where);
}

void StreamQueue::launch(const KernelLaunch& launch) {
  check_grid(launch.grid, where_);
  void* parameters[] = {const_cast<void*>(launch.kernel)};
  BELFRY_GPU_CALL(
      cudaLaunchKernel(launch.function, dim3(static_cast<unsigned>(launch.grid.blocks)),
                       dim3(static_cast<unsigned>(launch.grid.threads)), parameters, 0, stream()),
      where_);
}

}  // namespace belfry::cuda
