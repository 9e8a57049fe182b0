// The one logger. Lines go to stderr as "I|W|E text"; BELFRY_LOG=debug|info|warning|error sets the
// level (default info). Thread safe. Behind it is spdlog, which only log.cc includes.
#pragma once
#include <string_view>

#include "belfry/framework/base/text.h"

namespace belfry {

enum class LogLevel { kDebug, kInfo, kWarning, kError };

void log(LogLevel level, std::string_view line);
bool log_enabled(LogLevel level);

template <class... Parts>
void log_debug(const Parts&... parts) {
  if (log_enabled(LogLevel::kDebug)) log(LogLevel::kDebug, cat(parts...));
}
template <class... Parts>
void log_info(const Parts&... parts) {
  log(LogLevel::kInfo, cat(parts...));
}
template <class... Parts>
void log_warning(const Parts&... parts) {
  log(LogLevel::kWarning, cat(parts...));
}
template <class... Parts>
void log_error(const Parts&... parts) {
  log(LogLevel::kError, cat(parts...));
}

// Whether nobody in this process has asked about this text before: for warnings that are enough
// once.
bool first_time(std::string_view text);

}  // namespace belfry
