// Signals as a file to wait for, in a command that passes them on.
#pragma once
#include <csignal>
#include <vector>

#include "belfry/trainers/commands/child_process.h"

namespace belfry {

// As long as it lives, SIGINT, SIGTERM, SIGHUP, SIGUSR1, SIGUSR2 and SIGCHLD only make file()
// readable. Make one at a time, before any other thread starts.
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
  // The signals that a started program has to block.
  const sigset_t& before() const { return before_; }

 private:
  sigset_t before_ = {};
  OpenFile file_;
  int asked_to_end_ = 0;
};

}  // namespace belfry
