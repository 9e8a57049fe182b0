// Streams and communicators shared by the steps of a session. Runs take turns; feeds are copied
// meanwhile.
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

// The communicators of a group of GPUs: one rank per GPU.
struct Communicators {
  std::vector<int> gpus = {};
  std::unique_ptr<GpuCommunicators> live = {};  // null before the first use, and after a failure
  int made = 0;                                 // how often they were made
};

class GpuStreams {
 public:
  // The devices belong to a session that drives GPUs, and outlive this.
  explicit GpuStreams(const std::vector<std::unique_ptr<Device>>& devices);

  // The stream in which a GPU device computes, or the one in which it communicates. Created at its
  // first use. Communication is urgent, or it would wait for each wave of a convolution's blocks.
  GpuStream& of(int device, bool communicates = false);
  // The communicators whose rank r is on the GPU of devices[r].
  Communicators& communicators(const std::vector<int>& devices);
  // The stream in which feeds are copied to a device's physical GPU while it computes. Created at
  // its first use. Only the holder of copying() may use it.
  GpuStream& copies(int device);
  std::mutex& copying() { return copying_; }
  // Call it after a failure. It waits until no copy is under way. Earlier copies may not have been
  // made; failures() counts these calls.
  void drain_copies() noexcept;
  int failures() const { return failures_.load(std::memory_order_acquire); }
  // Pinned host memory, which GPUs write and hosts poll.
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

// The number of finished launches of a GPU's strand. The GPU writes it, the host polls it.
class Stamp {
 public:
  Stamp() = default;
  // The counter lies in pinned memory.
  explicit Stamp(std::int64_t& counter) : counter_(&counter) { set(0); }

  bool reached(std::int64_t epoch) const {
    return std::atomic_ref(*counter_).load(std::memory_order_acquire) >= epoch;
  }
  std::int64_t value() const { return std::atomic_ref(*counter_).load(std::memory_order_acquire); }
  // Call it while the GPU is idle.
  void set(std::int64_t epoch) const {
    std::atomic_ref(*counter_).store(epoch, std::memory_order_release);
  }
  std::int64_t& counter() const { return *counter_; }

 private:
  std::int64_t* counter_ = nullptr;
};

}  // namespace belfry
