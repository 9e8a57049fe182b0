// Hooks for parts that share the screen with the log, such as a status line.
#pragma once
#include <functional>
#include <string>
#include <string_view>

namespace belfry {

// While it lives, `call` runs before each logged line, on the logging thread. `call` must not log.
class BeforeLog {
 public:
  explicit BeforeLog(std::function<void()> call);
  ~BeforeLog();
  BeforeLog(const BeforeLog&) = delete;
  BeforeLog& operator=(const BeforeLog&) = delete;

 private:
  std::function<void()> call_;
};

// While it lives, `call` receives each logged line, e.g. "W the loss is nan", on the logging
// thread. `call` must not log.
class LogCopy {
 public:
  explicit LogCopy(std::function<void(std::string_view)> call);
  ~LogCopy();
  LogCopy(const LogCopy&) = delete;
  LogCopy& operator=(const LogCopy&) = delete;

 private:
  std::function<void(std::string_view)> call_;
};

}  // namespace belfry
