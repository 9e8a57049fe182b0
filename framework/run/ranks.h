// What a step asks of those who do their part of a collective from their own streams or processes:
// all see the same reductions in the same order, and none returns before all have begun.
#pragma once
#include <cstdint>
#include <functional>

#include "belfry/framework/plan/schedule.h"

namespace belfry {

class Ranks {
 public:
  virtual ~Ranks() = default;

  // Before a run: whether there is something to be connected, which connect() does then.
  virtual bool begin() = 0;
  // A part is about to be enqueued: until the strand has counted so far it has not finished.
  virtual void expect(StrandIndex strand, std::int64_t epoch) = 0;
  // While others wait: throws CommError for what has failed, or not finished in time.
  virtual void check() = 0;
  // Behind a run that has succeeded.
  virtual void end() = 0;
  // After a failure, when all threads are parked: what waits for other ranks ends.
  virtual void fail() noexcept = 0;
};

}  // namespace belfry
