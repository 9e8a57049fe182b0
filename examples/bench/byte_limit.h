// The speed limit of memory for reading and writing the buffers of all towers in place.
#pragma once
#include "belfry/framework/base/allocator.h"
#include "belfry/framework/run/workers.h"

namespace belfry {

// Buffers as of an all-reduce in place; scaling them moves the same bytes and does nothing else.
// Each worker has an equal part of each.
class ByteLimit {
 public:
  // `bytes` per buffer. Throws OutOfMemory.
  ByteLimit(int buffers, std::int64_t bytes, int workers);

  // Each worker scales its part of one buffer, then of the next.
  void streams_in_turn();
  // Each worker scales its part of all buffers in one loop.
  void streams_together();

 private:
  void each_part(const std::function<void(std::int64_t begin, std::int64_t end)>& scale);

  std::int64_t elements_;
  Allocator memory_;
  std::vector<MemoryBlock> buffers_;
  std::vector<float*> streams_;
  WorkerPool pool_;
};

}  // namespace belfry
