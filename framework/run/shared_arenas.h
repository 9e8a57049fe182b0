// The arenas of steps that run one after another. What lies there is of one run alone, so a device
// needs one arena, as large as the largest of these steps wants it.
#pragma once
#include <algorithm>
#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "belfry/framework/base/allocator.h"
#include "belfry/framework/device/device.h"

namespace belfry {

// Who calls these holds the lock of runs (Runtime::run_lock), or has the devices to itself.
class SharedArenas {
 public:
  explicit SharedArenas(const std::vector<std::unique_ptr<Device>>& devices)
      : devices_(devices), blocks_(devices.size()), bytes_(devices.size(), 0) {}

  // From now on each device has an arena of so many bytes. One of another size ends before its
  // successor is made, as both may not fit. If that throws OutOfMemory, the sizes of before hold,
  // and restore() makes these arenas again.
  void resize(std::span<const std::int64_t> bytes);
  // Whether resize() was called with these last. Who asks is the one that may call it.
  bool have(std::span<const std::int64_t> bytes) const { return std::ranges::equal(bytes, bytes_); }
  // Makes those that a failed resize() has ended. Throws OutOfMemory.
  void restore() { make(bytes_); }
  std::byte* of(std::size_t device) const { return blocks_[device].data(); }

 private:
  void make(std::span<const std::int64_t> bytes);

  const std::vector<std::unique_ptr<Device>>& devices_;
  std::vector<MemoryBlock> blocks_;
  std::vector<std::int64_t> bytes_;
};

}  // namespace belfry
