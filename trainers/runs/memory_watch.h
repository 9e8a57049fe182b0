// Measures the memory of a run at regular steps.
#pragma once
#include <cstdint>
#include <vector>

#include "belfry/trainers/core/callbacks.h"
#include "belfry/trainers/core/training_step.h"

namespace belfry {

// Measures the memory of the process and of the devices after every `every` steps. It is called
// before the callbacks that record the values.
class MemoryWatch final : public Callback {
 public:
  // `every`: steps; 0: never.
  explicit MemoryWatch(std::int64_t every) : every_(every) {}
  CallbackPhase phase() const override { return CallbackPhase::kMeasure; }
  void after_step(Trainer& trainer, const StepInfo& info) override;

  // The values after the last step; empty if that step was not measured. "host_bytes" is the memory
  // of the process. "device_bytes/CPU:0" and so on is the memory of variables and plans on a
  // device.
  const std::vector<NamedValue>& values() const { return values_; }

 private:
  std::int64_t every_;
  std::vector<NamedValue> values_;
};

}  // namespace belfry
