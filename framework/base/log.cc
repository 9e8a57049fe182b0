#include "belfry/framework/base/log.h"

#include <cstdlib>
#include <mutex>
#include <set>
#include <string>
#include <vector>

#include <spdlog/sinks/stdout_sinks.h>
#include <spdlog/spdlog.h>

#include "belfry/framework/base/before_log.h"
#include "belfry/framework/base/text.h"

namespace belfry {
namespace {

spdlog::level::level_enum level_of(LogLevel level) {
  switch (level) {
    case LogLevel::kDebug: return spdlog::level::debug;
    case LogLevel::kInfo: return spdlog::level::info;
    case LogLevel::kWarning: return spdlog::level::warn;
    case LogLevel::kError: break;
  }
  return spdlog::level::err;
}

spdlog::logger& logger() {
  static spdlog::logger instance = [] {
    spdlog::logger made("belfry", std::make_shared<spdlog::sinks::stderr_sink_mt>());
    made.set_pattern("%L %v");
    const char* wanted = std::getenv("BELFRY_LOG");
    const auto level = spdlog::level::from_str(wanted ? wanted : "info");
    // spdlog turns an unknown level into `off`, which would silence errors, too.
    made.set_level(level == spdlog::level::off ? spdlog::level::info : level);
    return made;
  }();
  return instance;
}

// Functions that are called before and after each line.
struct LogWatchers {
  std::mutex mutex;
  std::vector<const std::function<void()>*> calls;
  std::vector<const std::function<void(std::string_view)>*> copies;
};

LogWatchers& log_watchers() {
  static LogWatchers instance;
  return instance;
}

}  // namespace

BeforeLog::BeforeLog(std::function<void()> call) : call_(std::move(call)) {
  const std::lock_guard lock(log_watchers().mutex);
  log_watchers().calls.push_back(&call_);
}

BeforeLog::~BeforeLog() {
  const std::lock_guard lock(log_watchers().mutex);
  std::erase(log_watchers().calls, &call_);
}

LogCopy::LogCopy(std::function<void(std::string_view)> call) : call_(std::move(call)) {
  const std::lock_guard lock(log_watchers().mutex);
  log_watchers().copies.push_back(&call_);
}

LogCopy::~LogCopy() {
  const std::lock_guard lock(log_watchers().mutex);
  std::erase(log_watchers().copies, &call_);
}

void log(LogLevel level, std::string_view text) {
  if (!log_enabled(level)) return;
  // The lock is held while the line is written, so that nothing gets in between.
  const std::lock_guard lock(log_watchers().mutex);
  for (const std::function<void()>* call : log_watchers().calls) (*call)();
  logger().log(level_of(level), text);
  constexpr std::string_view kLetters = "DIWE";
  for (const auto* copy : log_watchers().copies)
    (*copy)(cat(kLetters[static_cast<std::size_t>(level)], " ", text));
}

bool log_enabled(LogLevel level) { return logger().should_log(level_of(level)); }

bool first_time_logged(std::string_view text) {
  static std::mutex mutex;
  static std::set<std::string, std::less<>> known;
  const std::lock_guard lock(mutex);
  return known.emplace(text).second;
}

}  // namespace belfry
