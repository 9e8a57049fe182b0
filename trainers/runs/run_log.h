// log.txt of a run directory: what the run printed and logged, with times.
#pragma once
#include <mutex>
#include <optional>
#include <string>
#include <string_view>

#include "belfry/framework/base/before_log.h"
#include "belfry/framework/base/file_system.h"
#include "belfry/trainers/core/callbacks.h"
#include "belfry/trainers/runs/line_file.h"

namespace belfry {

// Lines that cannot be written wait until they can. A warning after the step says so.
class RunLog final : public Callback {
 public:
  RunLog(FileSystem& files, std::string path);
  // From now on, each line of the log goes to the end of the file. Throws IoError.
  void open();
  // Adds a line, without a line break. Any thread may call it.
  void line(std::string_view text);

  void after_step(Trainer&, const StepInfo&) override { tell(); }
  void after_training(Trainer&, const StepInfo&) override { tell(); }
  void on_error(Trainer&, const std::exception&) override { tell(); }

 private:
  void tell();

  FileSystem& files_;
  std::mutex mutex_;
  LineFile file_;
  std::string warning_;          // for tell(), as line() must not log
  std::optional<LogCopy> copy_;  // last: it calls line()
};

}  // namespace belfry
