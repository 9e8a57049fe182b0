// Ends a run whose copies of a variable are no longer equal.
#pragma once
#include <cstdint>

#include "belfry/trainers/core/callbacks.h"

namespace belfry {

// Compares the copies of variables after every `every` steps, as each save does: within the process
// (require_equal_replicas()), then between all processes.
class ReplicaCheck final : public Callback {
 public:
  // Throws InvalidArgument for less than 1.
  explicit ReplicaCheck(std::int64_t every);
  CallbackPhase phase() const override { return CallbackPhase::kCheck; }
  void after_step(Trainer& trainer, const StepInfo& info) override;

 private:
  std::int64_t every_;
};

}  // namespace belfry
