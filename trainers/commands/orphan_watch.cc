#include "belfry/trainers/commands/orphan_watch.h"

#include <algorithm>
#include <cctype>
#include <cerrno>
#include <csignal>
#include <cstdlib>
#include <cstring>
#include <random>
#include <string_view>

#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include "belfry/framework/base/end_process.h"
#include "belfry/framework/base/file_system.h"
#include "belfry/framework/base/log.h"
#include "belfry/framework/base/require.h"
#include "belfry/framework/base/text.h"

namespace belfry {
namespace {

constexpr int kMostOrphanLooks = 1000;
constexpr useconds_t kBetweenOrphanLooks = 10'000;

// Empty if the process has ended, or belongs to another user.
std::string environment_text(const std::string& process) try {
  const std::vector<std::byte> bytes = local_file_system().read(cat("/proc/", process, "/environ"));
  return {reinterpret_cast<const char*>(bytes.data()), bytes.size()};
} catch (const Error&) {
  return "";
}

// Returns whether there was any.
bool kill_marked(const std::string& mark) {
  bool found = false;
  for (const std::string& name : local_file_system().list("/proc")) {
    const bool is_process =
        std::ranges::all_of(name, [](unsigned char c) { return std::isdigit(c); });
    if (!is_process || environment_text(name).find(mark) == std::string::npos) continue;
    ::kill(std::atoi(name.c_str()), SIGKILL);
    found = true;
  }
  return found;
}

// Looks again until it finds none: one may have started another meanwhile.
void end_marked(const std::string& mark) try {
  for (int i = 0; i < kMostOrphanLooks && kill_marked(mark); ++i) ::usleep(kBetweenOrphanLooks);
} catch (const Error& error) {
  log_debug("no process can be looked for: ", error.what());
}

// What the process that watches does. It keeps nothing of the command: no file, no output for whose
// end somebody waits, no group whose signals would reach it, no folder.
[[noreturn]] void watch_for_orphans(int alive, const std::string& mark) {
  ::prctl(PR_SET_NAME, "belfry-watch");
  ::setsid();
  sigset_t all;
  ::sigfillset(&all);
  ::sigprocmask(SIG_SETMASK, &all, nullptr);
  ::dup2(alive, 0);
  ::closefrom(1);
  prepare_standard_descriptors();
  std::ignore = ::chdir("/");
  char nothing = 0;
  while (::read(0, &nothing, 1) < 0 && errno == EINTR) {
  }
  end_marked(mark);
  end_process(0);
}

}  // namespace

OrphanWatch::OrphanWatch() {
  std::random_device random;
  mark_ = cat(::getpid(), "-", random(), "-", random());
  for (const Descendant& other : descendants({})) spared_.push_back(other.pid);
  Pipe alive = make_pipe();
  watcher_ = ::fork();
  require<IoError>(watcher_ >= 0, "cannot start a process: ", std::strerror(errno));
  if (watcher_ == 0) watch_for_orphans(alive.out.number(), mark_);
  alive_ = std::move(alive.in);
  spared_.push_back(watcher_);
  adopt_orphans();
}

OrphanWatch::~OrphanWatch() {
  alive_.close();
  ::waitpid(watcher_, nullptr, 0);
}

std::string OrphanWatch::value(int rank) const {
  const char* const outer = std::getenv(kVariable);
  return cat(outer ? cat(outer, "+") : "", mark_, ":", rank);
}

std::optional<int> OrphanWatch::rank_of(pid_t process) const {
  const std::string environment = environment_text(std::to_string(process));
  const std::string start = mark_ + ":";
  const std::size_t at = environment.find(start);
  if (at == std::string::npos) return {};
  return std::atoi(environment.c_str() + at + start.size());
}

// One look may miss a process whose parent ends meanwhile, so it takes two without any.
void OrphanWatch::end_all() const {
  int empty = 0;
  for (int i = 0; i < kMostOrphanLooks && empty < 2; ++i) {
    const std::vector<Descendant> processes = left();
    empty = processes.empty() ? empty + 1 : 0;
    for (const Descendant& process : processes) ::kill(process.pid, SIGKILL);
    if (!processes.empty()) ::usleep(kBetweenOrphanLooks);
  }
}

}  // namespace belfry
