// What a step asks of ranks. Each rank does its part of a collective in a stream or process of its
// own. All ranks see the same reductions in the same order, and no reduction ends before all ranks
// have begun it.
#pragma once
#include <cstdint>
#include <functional>

#include "belfry/framework/plan/schedule.h"

namespace belfry {

class Ranks {
 public:
  virtual ~Ranks() = default;

  // Before a run: whether ranks must be connected first.
  virtual bool begin() = 0;
  // A part is about to be enqueued. It has finished when the strand has counted to `epoch`.
  virtual void expect(StrandIndex strand, std::int64_t epoch) = 0;
  // While threads wait: throws CommError for a part that has failed, or not finished in time.
  virtual void check() = 0;
  // After a run that has succeeded.
  virtual void end() = 0;
  // After a failure, when all threads are parked: ends everything that waits for other ranks.
  virtual void fail() noexcept = 0;
};

}  // namespace belfry
