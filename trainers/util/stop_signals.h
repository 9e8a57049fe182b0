// Signals that ask a training program to end or to save.
#pragma once
#include <csignal>
#include <cstddef>
#include <vector>

namespace belfry {

// The requests that came and were not taken yet.
struct StopRequests {
  int signal = 0;     // SIGINT, SIGTERM, SIGHUP or SIGUSR1: save and end; 0: none
  bool save = false;  // SIGUSR2: save and continue
};

// While it lives, it records SIGINT, SIGTERM, SIGHUP, SIGUSR1 and SIGUSR2, which then do not end
// the process. A second request to end, half a second later or more, ends the process at once. A
// signal that the process ignored before, such as SIGHUP under nohup, stays ignored. A signal that
// the parent process blocked is unblocked meanwhile. Only one may exist at a time, made and
// destroyed by the same thread.
//
// The handler has its own stack in the thread that makes this. If it ran on the stack of a thread
// that computes a product by oneDNN, it would corrupt the heap (seen with 2.6.3). Threads of
// start_thread() take no signals.
class StopSignals {
 public:
  StopSignals();
  ~StopSignals();
  StopSignals(const StopSignals&) = delete;
  StopSignals& operator=(const StopSignals&) = delete;

  // Forgets the request to save; a request to end stays.
  static StopRequests take();
  // The request to end, as take() returns it; this call clears nothing.
  static int signal();

 private:
  sigset_t mask_before_ = {};
  std::vector<std::byte> stack_;  // empty: the thread had one before
};

// The exit code of a program that a signal has ended: 128 plus its number, as in shells. SIGUSR1
// and SIGHUP count as SIGTERM, which they stand for.
int exit_code_of(int signal);

}  // namespace belfry
