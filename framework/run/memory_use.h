// The memory that the variables and kept steps of a session take on each device.
#pragma once
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "belfry/framework/plan/memory_kinds.h"
#include "belfry/framework/run/kept_steps.h"
#include "belfry/framework/run/variable_memory.h"

namespace belfry {

class MemoryUse {
 public:
  MemoryUse(const std::vector<std::unique_ptr<Device>>& devices, const VariableMemory& variables,
            const KeptSteps& steps)
      : devices_(devices), variables_(variables), steps_(steps), peak_bytes_(devices.size()) {}

  std::vector<DeviceUse> of_devices() const;
  MemoryReport by_kind() const;
  // Per device: the size of the arena that the kept steps share, if `more` plans share it, too.
  std::vector<std::int64_t> arena_bytes(std::span<const Plan* const> more = {}) const;
  // Call it after memory has been allocated.
  void note_peak();
  // Describes, for people, which device limits the plan exceeds; empty if it fits. With
  // `counts_fetches` its fetches count, too.
  std::string lacking(const Plan& plan, bool counts_fetches) const;

 private:
  void add_steps(MemoryReport& report) const;

  const std::vector<std::unique_ptr<Device>>& devices_;
  const VariableMemory& variables_;
  const KeptSteps& steps_;
  std::vector<std::int64_t> peak_bytes_;  // by device
};

}  // namespace belfry
