// Ends a run whose copies of a variable are no longer equal.
#pragma once
#include <cstdint>

#include "belfry/trainers/core/callbacks.h"

namespace belfry {

// Calls require_equal_replicas() after every `every` steps, as each save does.
class ReplicaCheck final : public Callback {
 public:
  // Throws InvalidArgument for less than 1.
  explicit ReplicaCheck(std::int64_t every);
  void after_step(Trainer& trainer, const StepInfo& info) override;

 private:
  std::int64_t every_;
};

}  // namespace belfry
