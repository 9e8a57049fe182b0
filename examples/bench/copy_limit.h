// The speed at which GPUs copy the buffers of all towers within their memory. Copies read and write
// as many bytes as an all-reduce in place.
#pragma once
#include <memory>
#include <span>
#include <vector>

#include "belfry/framework/device/device.h"
#include "belfry/framework/device/gpu_streams.h"

namespace belfry {

class CopyLimit {
 public:
  // Makes a buffer of `bytes` on each of these GPU devices, and allocates twice as many bytes.
  // Throws InvalidArgument if there are no such GPUs, and OutOfMemory.
  CopyLimit(std::span<const DeviceSpec> devices, int logical_gpus, std::int64_t bytes);

  // Copies on all GPUs at once, `times` times in a row; returns when all are done.
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
