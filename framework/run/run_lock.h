#pragma once
#include <mutex>
#include <shared_mutex>

namespace belfry {

// A std::shared_mutex without starvation. A run that waits to be alone keeps later sharers out,
// because they could come and go for ever. Use it through the locks of <mutex>.
class RunLock {
 public:
  void lock() {
    const std::lock_guard turn(turn_);
    runs_.lock();
  }
  void unlock() { runs_.unlock(); }
  void lock_shared() {
    const std::lock_guard turn(turn_);
    runs_.lock_shared();
  }
  void unlock_shared() { runs_.unlock_shared(); }

 private:
  std::mutex turn_;
  std::shared_mutex runs_;
};

}  // namespace belfry
