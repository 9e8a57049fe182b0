#include "belfry/trainers/commands/forwarded_signals.h"

#include <cerrno>
#include <cstring>

#include <sys/signalfd.h>
#include <unistd.h>

#include "belfry/framework/base/require.h"

namespace belfry {
namespace {

bool is_ignored(int signal) {
  struct sigaction now = {};
  return ::sigaction(signal, nullptr, &now) == 0 && now.sa_handler == SIG_IGN;
}

}  // namespace

ForwardedSignals::ForwardedSignals() {
  std::signal(SIGCHLD, SIG_DFL);  // else the system itself collects children, and how they ended
  sigset_t taken;
  ::sigemptyset(&taken);
  for (const int signal : {SIGINT, SIGTERM, SIGHUP, SIGUSR1, SIGUSR2, SIGCHLD})
    if (!is_ignored(signal)) ::sigaddset(&taken, signal);
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
    if (signal != SIGUSR2) note_request(signal);
  }
  return signals;
}

void ForwardedSignals::note_request(int signal) {
  constexpr std::chrono::milliseconds kOneRequest{500};
  const auto now = std::chrono::steady_clock::now();
  if (asked_to_end_ == 0) {
    asked_to_end_ = signal;
    asked_at_ = now;
  }
  asked_again_ = asked_again_ || now - asked_at_ >= kOneRequest;
}

}  // namespace belfry
