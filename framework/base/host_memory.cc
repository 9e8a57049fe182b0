#include "belfry/framework/base/host_memory.h"

#include <algorithm>
#include <charconv>
#include <cstdio>

#include <unistd.h>

#include "belfry/framework/base/error.h"

namespace belfry {
namespace {

// Of version 2, and of version 1.
constexpr const char* kLimits[] = {"/sys/fs/cgroup/memory.max",
                                   "/sys/fs/cgroup/memory/memory.limit_in_bytes"};

}  // namespace

std::int64_t host_memory(FileSystem& files) {
  std::int64_t least = std::int64_t{sysconf(_SC_PHYS_PAGES)} * sysconf(_SC_PAGESIZE);
  for (const char* path : kLimits) {
    try {
      const std::vector<std::byte> bytes = files.read(path);
      const auto* text = reinterpret_cast<const char*>(bytes.data());
      std::int64_t limit = 0;
      // Where there is no limit, the file says "max", or a number beyond any memory.
      if (std::from_chars(text, text + bytes.size(), limit).ec == std::errc() && limit > 0)
        least = std::min(least, limit);
    } catch (const Error&) {  // no such control group
    }
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
