// log.txt of a run directory: what the run printed and logged, with times.
#pragma once
#include <memory>
#include <mutex>
#include <string>
#include <string_view>

#include "belfry/framework/base/before_log.h"
#include "belfry/framework/base/file_system.h"

namespace belfry {

// Adds to the file, from now on, each line of line() and of the log. Any thread may call it. What
// cannot be written is lost: it is on the screen.
class RunLog {
 public:
  RunLog(FileSystem& files, const std::string& path);
  void line(std::string_view text);

 private:
  std::mutex mutex_;
  std::unique_ptr<WritableFile> file_;
  LogCopy copy_;  // last: it calls line()
};

}  // namespace belfry
