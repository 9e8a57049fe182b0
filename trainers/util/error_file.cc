#include "belfry/trainers/util/error_file.h"

#include <cstdlib>
#include <ctime>

#include "belfry/framework/base/error_json.h"
#include "belfry/framework/base/file_system.h"
#include "belfry/framework/base/log.h"
#include "belfry/framework/base/text.h"

namespace belfry {
namespace {

// torchrun takes the process that failed first for the cause. One that reports the failure of
// another may write before that one does.
std::int64_t time_of(const ErrorFields& error) {
  constexpr std::int64_t kAfterTheCause = 10;
  const bool is_of_another = error.rank >= 0 && error.rank != error.reporter;
  return static_cast<std::int64_t>(std::time(nullptr)) + (is_of_another ? kAfterTheCause : 0);
}

}  // namespace

void write_error_file(const ErrorFields& error) noexcept try {
  const char* const path = std::getenv(kErrorFileVariable);
  if (!path || !*path) return;
  const std::string time = std::to_string(time_of(error));
  const JsonValue json = JsonValue::object().set(
      "message", JsonValue::object()
                     .set("message", error_text(error))
                     .set("extraInfo", JsonValue::object().set("timestamp", time))
                     .set("error", to_json(error)));
  write_text_file(local_file_system(), path, json.str(2) + "\n");
} catch (const std::exception& other) {
  log_warning("the launcher gets no file about the error: ", other.what());
}

std::optional<ErrorFields> read_error_file(const std::string& path) try {
  FileSystem& files = local_file_system();
  if (!files.exists(path)) return {};
  const std::vector<std::byte> bytes = files.read(path, kMostJsonBytes);
  const JsonValue json =
      JsonValue::parse({reinterpret_cast<const char*>(bytes.data()), bytes.size()});
  return error_from(json.at("message").at("error"));
} catch (const Error& error) {
  log_debug("what a process says of its error cannot be read: ", error.what());
  return {};
}

}  // namespace belfry
