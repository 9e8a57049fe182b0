// The byte limit: how fast devices read and write the buffers of all towers, and do nothing else.
// What allreduce_bench times is compared with it, and peak_bench prints it.
#pragma once
#include <memory>
#include <span>

#include "belfry/framework/graph/device_spec.h"

namespace belfry {

// A buffer for each device, as of an all-reduce in place.
class ByteLimit {
 public:
  // Allocates `bytes` for each device. If all are GPUs, a buffer is copied within the memory of its
  // GPU, which takes as many bytes again; else `workers` workers scale their parts of all buffers
  // in one loop. Throws InvalidArgument if there are no such GPUs, and OutOfMemory.
  ByteLimit(std::span<const DeviceSpec> devices, int logical_gpus, std::int64_t bytes, int workers);
  ~ByteLimit();

  // Reads and writes all buffers `times` times in a row, on all devices at once.
  void run(int times = 1);

  class Buffers;  // on hosts, or on GPUs

 private:
  std::unique_ptr<Buffers> buffers_;
};

}  // namespace belfry
