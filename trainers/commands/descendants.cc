#include "belfry/trainers/commands/descendants.h"

#include <algorithm>
#include <cctype>
#include <charconv>
#include <cstdlib>
#include <map>
#include <optional>
#include <string>
#include <string_view>

#include <sys/prctl.h>
#include <unistd.h>

#include "belfry/framework/base/file_system.h"
#include "belfry/framework/base/log.h"
#include "belfry/framework/base/require.h"

namespace belfry {
namespace {

// Of the text "4711 (mnist".
std::string_view name_in(std::string_view text) {
  return text.substr(std::min(text.find('(') + 1, text.size()));
}

// What /proc/PID/stat says; none if the process has ended. See proc(5) for the fields.
std::optional<Descendant> process_status(const std::string& name) try {
  enum Field { kState = 3, kParent = 4, kGroup = 5, kFlags = 9, kIgnored = 33, kCaught = 34 };
  constexpr std::uint64_t kForkedWithoutExec = 0x40;
  const std::vector<std::byte> bytes = local_file_system().read(cat("/proc/", name, "/stat"));
  const std::string_view text(reinterpret_cast<const char*>(bytes.data()), bytes.size());
  const std::size_t name_end = text.rfind(')');  // a program's name may have any character
  const auto fields = split(text.substr(std::min(name_end, text.size())), ' ');
  if (fields.size() <= kCaught - kState + 1) return {};
  const auto number = [&](Field field) {
    const std::string_view digits = fields.at(field - kState + 1);
    std::uint64_t value = 0;
    std::from_chars(digits.data(), digits.data() + digits.size(), value);
    return value;
  };
  const std::string_view state = fields.at(1);
  if (state == "Z" || state == "X") return {};
  return Descendant{.pid = std::atoi(name.c_str()),
                    .parent = static_cast<pid_t>(number(kParent)),
                    .group = static_cast<pid_t>(number(kGroup)),
                    .caught = number(kCaught),
                    .ignored = number(kIgnored),
                    .is_copy = (number(kFlags) & kForkedWithoutExec) != 0,
                    .name = std::string(name_in(text.substr(0, name_end)))};
} catch (const Error&) {
  return {};
}

std::map<pid_t, Descendant> all_processes() try {
  std::map<pid_t, Descendant> all;
  for (const std::string& name : local_file_system().list("/proc"))
    if (std::ranges::all_of(name, [](unsigned char c) { return std::isdigit(c); }))
      if (const auto process = process_status(name)) all[process->pid] = *process;
  return all;
} catch (const Error& error) {
  log_debug("no process can be looked for: ", error.what());
  return {};
}

}  // namespace

void adopt_orphans() { ::prctl(PR_SET_CHILD_SUBREAPER, 1); }

std::vector<Descendant> descendants(std::span<const pid_t> spared) {
  const std::map<pid_t, Descendant> all = all_processes();
  const pid_t own = ::getpid();
  // The list is no snapshot, so parents might form a circle.
  const auto comes_from_this = [&](pid_t pid) {
    for (std::size_t steps = 0; steps < all.size(); ++steps) {
      const auto found = all.find(pid);
      if (found == all.end() || std::ranges::find(spared, pid) != spared.end()) return false;
      pid = found->second.parent;
      if (pid == own) return true;
    }
    return false;
  };
  std::vector<Descendant> found;
  for (const auto& [pid, process] : all)
    if (comes_from_this(pid)) found.push_back(process);
  for (Descendant& process : found) {
    const auto parent = all.find(process.parent);
    process.is_copy =
        process.is_copy && parent != all.end() && parent->second.caught == process.caught;
  }
  return found;
}

}  // namespace belfry
