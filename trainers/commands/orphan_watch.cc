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

bool is_marked(const std::string& process, const std::string& mark) try {
  const std::vector<std::byte> bytes = local_file_system().read(cat("/proc/", process, "/environ"));
  const std::string_view text(reinterpret_cast<const char*>(bytes.data()), bytes.size());
  return text.find(mark) != text.npos;
} catch (const Error&) {
  return false;  // it has ended, or belongs to another user
}

// Returns whether there was any.
bool kill_marked(const std::string& mark) {
  bool found = false;
  for (const std::string& name : local_file_system().list("/proc")) {
    const bool is_process =
        std::ranges::all_of(name, [](unsigned char c) { return std::isdigit(c); });
    if (!is_process || !is_marked(name, mark)) continue;
    ::kill(std::atoi(name.c_str()), SIGKILL);
    found = true;
  }
  return found;
}

// Looks again until it finds none: one may have started another meanwhile.
void end_marked(const std::string& mark) try {
  constexpr int kTries = 1000;
  constexpr useconds_t kPause = 10'000;
  for (int i = 0; i < kTries && kill_marked(mark); ++i) ::usleep(kPause);
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
  Pipe alive = make_pipe();
  watcher_ = ::fork();
  require<IoError>(watcher_ >= 0, "cannot start a process: ", std::strerror(errno));
  if (watcher_ == 0) watch_for_orphans(alive.out.number(), mark_);
  alive_ = std::move(alive.in);
}

OrphanWatch::~OrphanWatch() {
  alive_.close();
  ::waitpid(watcher_, nullptr, 0);
}

std::string OrphanWatch::value() const {
  const char* const outer = std::getenv(kVariable);
  return outer ? cat(outer, "+", mark_) : mark_;
}

void OrphanWatch::end_all() const { end_marked(mark_); }

}  // namespace belfry
