#include "belfry/framework/device/cpu_quota.h"

#include <charconv>
#include <string>

#include "belfry/framework/base/error.h"
#include "belfry/framework/base/text.h"

namespace belfry {
namespace {

// The text of a file; empty if the file is not there or cannot be read.
std::string text_in(FileSystem& files, const std::string& path) {
  constexpr std::size_t kMost = 4096;
  try {
    std::string text(kMost, '\0');
    text.resize(files.open(path)->read(std::as_writable_bytes(std::span(text))));
    return text;
  } catch (const Error&) {
    return "";
  }
}

std::optional<double> positive_number(std::string_view text) {
  double value = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  return error == std::errc() && value > 0 ? std::optional(value) : std::nullopt;
}

std::optional<double> ratio(std::string_view quota, std::string_view period) {
  const auto used = positive_number(quota), of = positive_number(period);
  return used && of ? std::optional(*used / *of) : std::nullopt;
}

// The quota of one group. Version 2 says "max 100000" or "150000 100000". In version 1, -1 is no
// limit.
std::optional<double> quota_of(FileSystem& files, const std::string& folder, bool version_2) {
  if (!version_2)
    return ratio(text_in(files, folder + "/cpu.cfs_quota_us"),
                 text_in(files, folder + "/cpu.cfs_period_us"));
  const std::string text = text_in(files, folder + "/cpu.max");
  const std::size_t space = text.find(' ');
  if (space == std::string::npos) return {};
  return ratio(std::string_view(text).substr(0, space), std::string_view(text).substr(space + 1));
}

// The lines of /proc/self/cgroup are "0::/a/b" in version 2, and "4:cpu,cpuacct:/a/b" in version 1.
struct ControlGroup {
  std::string mount, path;
  bool version_2;
};

std::optional<ControlGroup> control_group_in(std::string_view line) {
  const std::vector<std::string_view> parts = split(line, ':');
  if (parts.size() != 3) return {};
  if (parts[0] == "0" && parts[1].empty())
    return ControlGroup{"/sys/fs/cgroup", std::string(parts[2]), true};
  for (const std::string_view controller : split(parts[1], ','))
    if (controller == "cpu")
      return ControlGroup{"/sys/fs/cgroup/cpu", std::string(parts[2]), false};
  return {};
}

}  // namespace

std::optional<double> cpu_quota(FileSystem& files) {
  std::optional<double> least;
  const std::string lines = text_in(files, "/proc/self/cgroup");
  for (const std::string_view line : split(lines, '\n')) {
    std::optional<ControlGroup> group = control_group_in(line);
    if (!group) continue;
    // In a container the path may be the one outside it. Then the mount itself is the group.
    for (std::string path = group->path;; path.resize(path.rfind('/'))) {
      const auto quota = quota_of(files, group->mount + path, group->version_2);
      if (quota && (!least || *quota < *least)) least = quota;
      if (path.empty() || path.rfind('/') == std::string::npos) break;
    }
  }
  return least;
}

}  // namespace belfry
