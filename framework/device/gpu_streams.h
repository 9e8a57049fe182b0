// What the steps of a session share of its GPUs: their runs take turns; feeds are copied meanwhile.
#pragma once
#include <atomic>
#include <cstdint>
#include <map>
#include <memory>
#include <mutex>
#include <utility>
#include <vector>

#include "belfry/framework/device/device.h"
#include "belfry/framework/device/gpu_backend.h"

namespace belfry {

// One rank for each of some GPUs.
struct Communicators {
  std::vector<int> gpus = {};
  std::unique_ptr<GpuCommunicators> live = {};  // null before the first use, and after a failure
  int made = 0;                                 // how often they were made
};

class GpuStreams {
 public:
  // Of devices of a session that drives GPUs, which outlive this.
  explicit GpuStreams(const std::vector<std::unique_ptr<Device>>& devices);

  // Of a GPU device, that in which it computes or the one for its communication: made at its first
  // use.
  GpuStream& of(int device, bool communicates = false);
  // Whose rank r is on the GPU of devices[r].
  Communicators& communicators(const std::vector<int>& devices);
  // Of the physical GPU that a device is on, for copies of feeds beside what is computed: made at
  // its first use. It is used by whoever holds copying().
  GpuStream& copies(int device);
  std::mutex& copying() { return copying_; }
  // After a failure: waits until no copy is under way. Copies from before need not have been done,
  // which failures() tells.
  void drain_copies() noexcept;
  int failures() const { return failures_.load(std::memory_order_acquire); }
  // Pinned memory of the host, for what GPUs write to be polled.
  Allocator& counters() { return counters_; }

 private:
  const std::vector<std::unique_ptr<Device>>& devices_;
  std::vector<int> gpus_;  // physical ones of the session
  Allocator counters_;
  std::map<std::pair<int, bool>, std::unique_ptr<GpuStream>> streams_;
  std::mutex copying_;
  std::map<int, std::unique_ptr<GpuStream>> copies_;  // by physical GPU
  std::atomic<int> failures_{0};
  std::map<std::vector<int>, Communicators> communicators_;  // by devices; they end before streams
};

// A count of the finished launches of a GPU's strand. The GPU writes it, the host polls it.
class Stamp {
 public:
  Stamp() = default;
  // In pinned memory.
  explicit Stamp(std::int64_t& counter) : counter_(&counter) { set(0); }

  bool reached(std::int64_t epoch) const {
    return std::atomic_ref(*counter_).load(std::memory_order_acquire) >= epoch;
  }
  std::int64_t value() const { return std::atomic_ref(*counter_).load(std::memory_order_acquire); }
  // While the GPU does nothing.
  void set(std::int64_t epoch) const {
    std::atomic_ref(*counter_).store(epoch, std::memory_order_release);
  }
  std::int64_t& counter() const { return *counter_; }

 private:
  std::int64_t* counter_ = nullptr;
};

}  // namespace belfry
