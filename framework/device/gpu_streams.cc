#include "belfry/framework/device/gpu_streams.h"

#include "belfry/framework/base/sort_unique.h"

namespace belfry {

// The first device is a CPU, whose memory is pinned.
GpuStreams::GpuStreams(const std::vector<std::unique_ptr<Device>>& devices)
    : devices_(devices), counters_("counters of GPUs", 0, devices[0]->source.get()) {
  for (const auto& device : devices)
    if (device->backend && device->on_gpu()) gpus_.push_back(device->gpu);
  sort_unique(gpus_);
}

GpuStream& GpuStreams::of(int device, bool communicates) {
  std::unique_ptr<GpuStream>& stream = streams_[{device, communicates}];
  const Device& of = *devices_[static_cast<std::size_t>(device)];
  if (!stream) stream = of.backend->make_stream(of.gpu, gpus_, communicates);
  return *stream;
}

GpuStream& GpuStreams::copies(int device) {
  const Device& of = *devices_[static_cast<std::size_t>(device)];
  const std::lock_guard lock(copying_);
  std::unique_ptr<GpuStream>& stream = copies_[of.gpu];
  if (!stream) stream = of.backend->make_stream(of.gpu, gpus_);
  return *stream;
}

void GpuStreams::drain_copies() noexcept {
  const std::lock_guard lock(copying_);
  for (const auto& [gpu, stream] : copies_) stream->drain();
  failures_.fetch_add(1, std::memory_order_release);
}

Communicators& GpuStreams::communicators(const std::vector<int>& devices) {
  Communicators& found = communicators_[devices];
  if (found.gpus.empty())
    for (const int device : devices)
      found.gpus.push_back(devices_[static_cast<std::size_t>(device)]->gpu);
  return found;
}

}  // namespace belfry
