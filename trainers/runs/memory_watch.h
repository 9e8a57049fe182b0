// The memory that a run takes, now and then.
#pragma once
#include <cstdint>
#include <vector>

#include "belfry/trainers/core/callbacks.h"
#include "belfry/trainers/core/training_step.h"

namespace belfry {

// Looks at the memory of the process and of the devices after every so many steps. Stands before
// callbacks that write the values down.
class MemoryWatch final : public Callback {
 public:
  // `every`: steps; 0: never.
  explicit MemoryWatch(std::int64_t every) : every_(every) {}
  CallbackPhase phase() const override { return CallbackPhase::kMeasure; }
  void after_step(Trainer& trainer, const StepInfo& info) override;

  // Values of the last step; empty if it was none to look at. "host_bytes" is the memory of the
  // process. "device_bytes/CPU:0" and so on is the memory of variables and plans on a device.
  const std::vector<NamedValue>& values() const { return values_; }

 private:
  std::int64_t every_;
  std::vector<NamedValue> values_;
};

}  // namespace belfry
