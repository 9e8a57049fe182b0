// Receives signals through a file descriptor that a command can wait for, so that it can pass them
// on.
#pragma once
#include <chrono>
#include <csignal>
#include <vector>

#include "belfry/trainers/commands/child_process.h"

namespace belfry {

// As long as it lives, SIGINT, SIGTERM, SIGHUP, SIGUSR1, SIGUSR2 and SIGCHLD only make file()
// readable. A signal that this process ignored before, such as SIGHUP under nohup, stays ignored,
// except SIGCHLD. Make one at a time, before any other thread starts.
class ForwardedSignals {
 public:
  ForwardedSignals();
  ~ForwardedSignals();
  ForwardedSignals(const ForwardedSignals&) = delete;
  ForwardedSignals& operator=(const ForwardedSignals&) = delete;

  int file() const { return file_.number(); }
  // The signals that came since the last call, except SIGCHLD. Call it when file() is readable.
  std::vector<int> take();
  // The first signal that asked to end; 0: none has.
  int asked_to_end() const { return asked_to_end_; }
  // Whether a second signal came late enough to count as a second request
  // (trainers/util/stop_signals.h).
  bool asked_again() const { return asked_again_; }
  // The signals that a started program has to block.
  const sigset_t& before() const { return before_; }

 private:
  void note_request(int signal);

  sigset_t before_ = {};
  OpenFile file_;
  int asked_to_end_ = 0;
  bool asked_again_ = false;
  std::chrono::steady_clock::time_point asked_at_;
};

}  // namespace belfry
