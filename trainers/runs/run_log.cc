#include "belfry/trainers/runs/run_log.h"

#include <array>
#include <ctime>
#include <utility>

#include "belfry/framework/base/log.h"
#include "belfry/framework/base/text.h"

namespace belfry {
namespace {

std::string time_text() {
  const std::time_t now = std::time(nullptr);
  std::tm parts = {};
  ::localtime_r(&now, &parts);
  std::array<char, 32> text;
  const std::size_t length =
      std::strftime(text.data(), text.size(), "%Y-%m-%d %H:%M:%S %z ", &parts);
  return {text.data(), length};
}

}  // namespace

RunLog::RunLog(FileSystem& files, std::string path)
    : files_(files),
      file_(files, std::move(path), OnSaveError::kContinue),
      copy_([this](std::string_view text) { line(text); }) {}

void RunLog::open() {
  const std::string& path = file_.path();
  file_.go_on(files_.exists(path) ? files_.open(path)->size() : 0);  // may log
  const std::lock_guard lock(mutex_);
  is_open_ = true;
  if (!early_.empty()) add(std::exchange(early_, {}));
}

void RunLog::line(std::string_view text) {
  const std::string time = time_text();
  std::string all;
  for (const std::string_view one : split(text, '\n')) all += cat(time, one, "\n");
  const std::lock_guard lock(mutex_);
  if (is_open_)
    add(all);
  else
    early_ += all;
}

// Holds the mutex.
void RunLog::add(const std::string& lines) {
  if (std::string warning = file_.add_and_tell(lines); !warning.empty()) warning_ = warning;
}

void RunLog::finish() {
  bool is_lost = false;
  {
    const std::lock_guard lock(mutex_);
    if (is_open_) add("");
    is_lost = file_.waits();
  }
  if (is_lost)
    log_warning(file_.path(), " cannot be written, so its last lines are lost");
  else
    tell();
}

void RunLog::tell() {
  std::string warning;
  {
    const std::lock_guard lock(mutex_);
    std::swap(warning, warning_);
  }
  if (!warning.empty()) log_warning(warning);
}

}  // namespace belfry
