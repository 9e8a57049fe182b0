#include "belfry/trainers/runs/run_log.h"

#include <array>
#include <ctime>
#include <span>

#include "belfry/framework/base/error.h"
#include "belfry/framework/base/text.h"

namespace belfry {
namespace {

std::string time_text() {
  const std::time_t now = std::time(nullptr);
  std::tm parts = {};
  ::localtime_r(&now, &parts);
  std::array<char, 32> text;
  const std::size_t length = std::strftime(text.data(), text.size(), "%Y-%m-%d %H:%M:%S ", &parts);
  return {text.data(), length};
}

}  // namespace

RunLog::RunLog(FileSystem& files, const std::string& path)
    : file_(files.extend(path, files.exists(path) ? files.open(path)->size() : 0)),
      copy_([this](std::string_view text) { line(text); }) {}

void RunLog::line(std::string_view text) try {
  const std::string all = cat(time_text(), text, "\n");
  const std::lock_guard lock(mutex_);
  if (file_) file_->append(std::as_bytes(std::span(all)));
} catch (const IoError&) {
  file_.reset();
}

}  // namespace belfry
