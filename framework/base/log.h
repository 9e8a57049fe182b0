// The one logger. Lines go to stderr as "I|W|E text"; BELFRY_LOG=debug|info|warning|error sets the
// level (default info). Thread safe. Wraps spdlog, which only log.cc includes.
#pragma once
#include <string_view>

#include "belfry/framework/base/cat.h"

namespace belfry {

enum class LogLevel { kDebug, kInfo, kWarning, kError };

void log(LogLevel level, std::string_view line);
bool log_enabled(LogLevel level);

template <class... Parts>
void log_debug(const Parts&... parts) {
  if (log_enabled(LogLevel::kDebug)) log(LogLevel::kDebug, detail::cat(parts...));
}
template <class... Parts>
void log_info(const Parts&... parts) {
  log(LogLevel::kInfo, detail::cat(parts...));
}
template <class... Parts>
void log_warning(const Parts&... parts) {
  log(LogLevel::kWarning, detail::cat(parts...));
}
template <class... Parts>
void log_error(const Parts&... parts) {
  log(LogLevel::kError, detail::cat(parts...));
}

// True once per text and process, for warnings that need to appear only once.
bool first_time_logged(std::string_view text);

}  // namespace belfry
