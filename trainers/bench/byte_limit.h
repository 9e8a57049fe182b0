// How fast memory lets the buffers of all towers be read and written in place.
#pragma once
#include "belfry/framework/base/allocator.h"
#include "belfry/framework/run/workers.h"

namespace belfry {

// Buffers like those that an all-reduce in place reads and writes; scaling them moves the same
// bytes and does nothing else. Each worker has an equal part, in turn or together.
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
