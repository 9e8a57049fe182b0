#include "belfry/trainers/commands/forwarded_signals.h"

#include <cerrno>
#include <cstring>

#include <sys/signalfd.h>
#include <unistd.h>

#include "belfry/framework/base/require.h"

namespace belfry {

ForwardedSignals::ForwardedSignals() {
  sigset_t taken;
  ::sigemptyset(&taken);
  for (const int signal : {SIGINT, SIGTERM, SIGHUP, SIGUSR1, SIGUSR2, SIGCHLD})
    ::sigaddset(&taken, signal);
  ::sigprocmask(SIG_BLOCK, &taken, &before_);
  file_ = OpenFile(::signalfd(-1, &taken, SFD_CLOEXEC | SFD_NONBLOCK));
  require<IoError>(static_cast<bool>(file_), "cannot wait for signals: ", std::strerror(errno));
}

ForwardedSignals::~ForwardedSignals() { ::sigprocmask(SIG_SETMASK, &before_, nullptr); }

std::vector<int> ForwardedSignals::take() {
  std::vector<int> signals;
  signalfd_siginfo info = {};
  while (::read(file(), &info, sizeof(info)) == sizeof(info)) {
    const auto signal = static_cast<int>(info.ssi_signo);
    if (signal == SIGCHLD) continue;
    signals.push_back(signal);
    if (asked_to_end_ == 0 && signal != SIGUSR2) asked_to_end_ = signal;
  }
  return signals;
}

}  // namespace belfry
