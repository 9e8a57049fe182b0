#include "belfry/framework/cuda/stream_queue.h"

#include <algorithm>
#include <cstring>
#include <limits>

namespace belfry::cuda {

StreamQueue::StreamQueue(std::string device)
    : where_{.device = std::move(device)},
      stream_(make_stream(where_.str())),
      faults_(allocate(kMostFaults * sizeof(Fault), where_.str())),
      told_(allocate_pinned(kMostFaults * sizeof(Fault), where_.str())),
      step_(allocate(sizeof(std::uint64_t), where_.str())),
      blas_(where_),
      dnn_(where_) {
  require<OutOfMemory>(faults_ && told_, "no memory for what kernels refuse, ", where_);
  dnn_.set_stream(stream(), where_);
  if (const cudaError_t status = set_faults_to_none())
    fail(status, "cudaMemsetAsync", where_.str());
}

Fault* StreamQueue::fault(const std::shared_ptr<const Refusal>& refusal) {
  auto* const faults = static_cast<Fault*>(faults_.get());
  if (const auto found = fault_of_.find(refusal); found != fault_of_.end())
    return faults + found->second;
  std::size_t place = fault_of_.size();
  const auto gone = std::ranges::find_if(fault_of_, [](auto& of) { return of.first.expired(); });
  if (gone != fault_of_.end()) {
    place = gone->second;
    fault_of_.erase(gone);
  }
  require<Internal>(place < kMostFaults, "steps with more than ", kMostFaults,
                    " kernels that may refuse their input, ", where_);
  fault_of_.emplace(refusal, place);
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
  std::size_t place = kMostFaults;
  for (const auto& [of, at] : fault_of_)
    if (told[at].first != Fault::kNone && at < place && !of.expired()) {
      first = of.lock();
      place = at;
    }
  if (first) first->raise(told[place].element(), told[place].value());
}

// All ones are Fault::kNone.
cudaError_t StreamQueue::set_faults_to_none() noexcept {
  constexpr std::size_t kBytes = kMostFaults * sizeof(Fault);
  std::memset(told_.get(), 0xff, kBytes);
  return cudaMemsetAsync(faults_.get(), 0xff, kBytes, stream());
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
