// Shows people that a program is working during one long call, such as measuring, planning or
// compiling.
#pragma once
#include <chrono>
#include <condition_variable>
#include <mutex>
#include <stop_token>
#include <string>
#include <thread>

namespace belfry {

// Logs "still <what>, for 20 s" from its own thread whenever `every` has passed, until it is
// destroyed. Calls that can say how far they are use Console::due() instead.
class Busy {
 public:
  explicit Busy(std::string what, std::chrono::milliseconds every = std::chrono::seconds(9));
  ~Busy();
  Busy(const Busy&) = delete;
  Busy& operator=(const Busy&) = delete;

 private:
  void report(const std::stop_token& stop);

  const std::string what_;
  const std::chrono::milliseconds every_;
  const std::chrono::steady_clock::time_point since_ = std::chrono::steady_clock::now();
  std::mutex mutex_;
  std::condition_variable_any ends_;
  std::jthread thread_;
};

}  // namespace belfry
