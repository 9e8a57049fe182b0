#include "belfry/framework/log.h"

#include <cstdlib>

#include <spdlog/sinks/stdout_sinks.h>
#include <spdlog/spdlog.h>

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
    // What spdlog does not know would silence errors too.
    made.set_level(level == spdlog::level::off ? spdlog::level::info : level);
    return made;
  }();
  return instance;
}

}  // namespace

void log(LogLevel level, std::string_view line) { logger().log(level_of(level), line); }

bool log_enabled(LogLevel level) { return logger().should_log(level_of(level)); }

}  // namespace belfry
