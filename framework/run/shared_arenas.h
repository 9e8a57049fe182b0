// The arenas of steps that run one after another. Only one run uses an arena at a time, so a device
// needs only one, as large as the largest of these steps needs.
#pragma once
#include <algorithm>
#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "belfry/framework/base/allocator.h"
#include "belfry/framework/device/device.h"

namespace belfry {

// A caller holds the lock of runs (Runtime::run_lock), or has the devices to itself.
class SharedArenas {
 public:
  explicit SharedArenas(const std::vector<std::unique_ptr<Device>>& devices)
      : devices_(devices), blocks_(devices.size()), bytes_(devices.size(), 0) {}

  // Gives each device an arena of that many bytes. An arena of another size is freed before its
  // successor is made, because both may not fit. If this throws OutOfMemory, the old sizes hold,
  // and restore() makes the old arenas again.
  void resize(std::span<const std::int64_t> bytes);
  // Whether the arenas have these sizes. Only a thread that may call resize() asks.
  bool have(std::span<const std::int64_t> bytes) const { return std::ranges::equal(bytes, bytes_); }
  // Makes the arenas again that a failed resize() has freed. Throws OutOfMemory.
  void restore() { make(bytes_); }
  std::byte* of(std::size_t device) const { return blocks_[device].data(); }

 private:
  void make(std::span<const std::int64_t> bytes);

  const std::vector<std::unique_ptr<Device>>& devices_;
  std::vector<MemoryBlock> blocks_;
  std::vector<std::int64_t> bytes_;
};

}  // namespace belfry
