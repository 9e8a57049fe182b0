#include "copy_limit.h"

#include <algorithm>
#include <thread>

#include "belfry/framework/base/require.h"
#include "belfry/framework/run/session.h"
#include "belfry/trainers/util/device_list.h"

namespace belfry {

CopyLimit::CopyLimit(std::span<const DeviceSpec> devices, int logical_gpus, std::int64_t bytes)
    : devices_(make_devices({.device_count = device_count(devices), .logical_gpus = logical_gpus})),
      streams_(devices_) {
  const std::size_t size = static_cast<std::size_t>(std::max<std::int64_t>(bytes, 1));
  for (const DeviceSpec& spec : devices) {
    const auto found =
        std::ranges::find_if(devices_, [&](const auto& device) { return device->spec == spec; });
    require(found != devices_.end() && (*found)->backend, "there is no GPU device ", spec);
    Allocator& memory = (*found)->memory;
    MemoryBlock counter(streams_.counters(), sizeof(std::int64_t));
    const Stamp stamp(*reinterpret_cast<std::int64_t*>(counter.data()));
    buffers_.push_back({static_cast<int>(found - devices_.begin()), MemoryBlock(memory, size),
                        MemoryBlock(memory, size), std::move(counter), stamp});
  }
}

void CopyLimit::copy(int times) {
  ++copies_;
  try {
    enqueue_and_wait(times);
  } catch (...) {
    // What has been enqueued still uses the buffers.
    for (const Copied& buffer : buffers_) streams_.of(buffer.device).drain();
    throw;
  }
}

void CopyLimit::enqueue_and_wait(int times) {
  for (const Copied& buffer : buffers_) {
    const Device& device = *devices_[static_cast<std::size_t>(buffer.device)];
    GpuStream& stream = streams_.of(buffer.device);
    device.backend->use(device.gpu);
    for (int i = 0; i < times; ++i)
      stream.copy(buffer.to.data(), buffer.from.data(), buffer.from.bytes());
    stream.stamp(buffer.stamp.counter(), copies_);
  }
  for (const Copied& buffer : buffers_)
    while (!buffer.stamp.reached(copies_)) {
      streams_.of(buffer.device).check();
      std::this_thread::yield();
    }
}

}  // namespace belfry
