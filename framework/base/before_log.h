// For what shares the screen with the log, such as a status line.
#pragma once
#include <functional>

namespace belfry {

// While it lives, `call` is called before each line that is logged, on the thread that logs it. It
// must not log.
class BeforeLog {
 public:
  explicit BeforeLog(std::function<void()> call);
  ~BeforeLog();
  BeforeLog(const BeforeLog&) = delete;
  BeforeLog& operator=(const BeforeLog&) = delete;

 private:
  std::function<void()> call_;
};

}  // namespace belfry
