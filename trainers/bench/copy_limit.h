// How fast GPUs copy the buffers of all towers within their memory. As many bytes are read and
// written as an all-reduce in place reads and writes.
#pragma once
#include <memory>
#include <span>
#include <vector>

#include "belfry/framework/device/device.h"
#include "belfry/framework/device/gpu_streams.h"

namespace belfry {

class CopyLimit {
 public:
  // A buffer on each of these, all GPU devices. `bytes` per buffer; twice as many are allocated.
  // Throws InvalidArgument if there are no such GPUs, and OutOfMemory.
  CopyLimit(std::span<const DeviceSpec> devices, int logical_gpus, std::int64_t bytes);

  // All GPUs at once, so many times in a row; returns when it is done.
  void copy(int times = 1);

 private:
  void enqueue_and_wait(int times);

  struct Copied {
    int device;  // among devices_
    MemoryBlock from, to;
    MemoryBlock counter;
    Stamp stamp;
  };

  std::vector<std::unique_ptr<Device>> devices_;
  GpuStreams streams_;
  std::vector<Copied> buffers_;
  std::int64_t copies_ = 0;
};

}  // namespace belfry
