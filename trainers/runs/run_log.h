// log.txt of a run directory: what the run printed and logged, with times.
#pragma once
#include <mutex>
#include <string>
#include <string_view>

#include "belfry/framework/base/before_log.h"
#include "belfry/framework/base/file_system.h"
#include "belfry/trainers/core/callbacks.h"
#include "belfry/trainers/runs/line_file.h"

namespace belfry {

// Lines that cannot be written wait until they can be. A warning after the step says so. Each line
// has its time and the time zone: "2026-11-28 16:41:53 +0000 epoch 1, step 8: test".
class RunLog final : public Callback {
 public:
  // From now on it keeps each line of the log, for open().
  RunLog(FileSystem& files, std::string path);
  // Opens the file, appends the lines so far, and from now on each new line. Throws IoError.
  void open();
  // Tries to write waiting lines one last time. Logs a warning if that fails.
  void finish();
  // Adds a line, without a line break. Any thread may call it.
  void line(std::string_view text);

  CallbackPhase phase() const override { return CallbackPhase::kRecord; }
  void after_step(Trainer&, const StepInfo&) override { tell(); }
  void after_training(Trainer&, const StepInfo&) override { tell(); }
  void on_error(Trainer&, const std::exception&) override { tell(); }

 private:
  void tell();
  void add(const std::string& lines);

  FileSystem& files_;
  std::mutex mutex_;
  LineFile file_;
  bool is_open_ = false;
  std::string early_;    // lines before open()
  std::string warning_;  // for tell(), as line() must not log
  LogCopy copy_;         // last: it calls line()
};

}  // namespace belfry
