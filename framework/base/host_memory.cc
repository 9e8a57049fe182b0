#include "belfry/framework/base/host_memory.h"

#include <algorithm>
#include <charconv>
#include <cstdio>
#include <ctime>

#include <unistd.h>

#include "belfry/framework/base/error.h"
#include "belfry/framework/base/text.h"

namespace belfry {
namespace {

// Limits of control groups: version 2, version 1.
constexpr const char* kLimits[] = {"/sys/fs/cgroup/memory.max",
                                   "/sys/fs/cgroup/memory/memory.limit_in_bytes"};

// The content of a system file; "" if there is none.
std::string text_of(FileSystem& files, const char* path) {
  try {
    const std::vector<std::byte> bytes = files.read(path);
    return {reinterpret_cast<const char*>(bytes.data()), bytes.size()};
  } catch (const Error&) {
    return "";
  }
}

// The value of a line such as "VmHWM:      5132 kB".
std::int64_t status_bytes(FileSystem& files, std::string_view name) {
  const std::string text = text_of(files, "/proc/self/status");
  const std::size_t begin = text.find(cat("\n", name, ":"));
  if (begin == std::string::npos) return 0;
  const std::size_t number = text.find_first_of("0123456789", begin);
  if (number == std::string::npos) return 0;
  std::int64_t kilobytes = 0;
  std::from_chars(text.data() + number, text.data() + text.size(), kilobytes);
  return kilobytes << 10;
}

}  // namespace

std::int64_t resident_bytes(FileSystem& files) { return status_bytes(files, "VmRSS"); }
std::int64_t peak_resident_bytes(FileSystem& files) { return status_bytes(files, "VmHWM"); }

// Field 22 of the file is the start of the process, in ticks since the machine started. Field 2, a
// name in parentheses, may have blanks.
double seconds_since_start(FileSystem& files) {
  constexpr int kStart = 22, kAfterName = 3;
  const std::string text = text_of(files, "/proc/self/stat");
  std::size_t at = text.rfind(')');
  for (int field = kAfterName - 1; field < kStart && at != std::string::npos; ++field)
    at = text.find(' ', at + 1);
  if (at == std::string::npos) return 0;
  std::int64_t ticks = 0;
  std::from_chars(text.data() + at + 1, text.data() + text.size(), ticks);
  timespec now{};
  if (clock_gettime(CLOCK_BOOTTIME, &now) != 0) return 0;
  return static_cast<double>(now.tv_sec) + static_cast<double>(now.tv_nsec) * 1e-9 -
         static_cast<double>(ticks) / static_cast<double>(sysconf(_SC_CLK_TCK));
}

std::int64_t host_memory(FileSystem& files) {
  std::int64_t least = std::int64_t{sysconf(_SC_PHYS_PAGES)} * sysconf(_SC_PAGESIZE);
  for (const char* path : kLimits) {
    const std::string text = text_of(files, path);
    std::int64_t limit = 0;
    // Where there is no limit, the file says "max", or a number beyond any memory.
    if (std::from_chars(text.data(), text.data() + text.size(), limit).ec == std::errc() &&
        limit > 0)
      least = std::min(least, limit);
  }
  return least;
}

std::string byte_text(std::int64_t bytes) {
  constexpr const char* kUnits[] = {"bytes", "KiB", "MiB", "GiB", "TiB"};
  std::size_t unit = 0;
  auto value = static_cast<double>(bytes);
  for (; value >= 1024 && unit + 1 < std::size(kUnits); ++unit) value /= 1024;
  char text[40];
  std::snprintf(text, sizeof text, unit == 0 ? "%.0f %s" : "%.2f %s", value, kUnits[unit]);
  return text;
}

}  // namespace belfry
