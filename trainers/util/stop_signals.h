// Signals that ask a training program to end, or to save.
#pragma once
#include <csignal>
#include <cstddef>
#include <vector>

namespace belfry {

// The requests that came and were not taken yet.
struct StopRequests {
  int signal = 0;     // SIGINT, SIGTERM, SIGHUP or SIGUSR1: save and end; 0: none
  bool save = false;  // SIGUSR2: save and go on
};

// While it lives, it notes SIGINT, SIGTERM, SIGHUP, SIGUSR1 and SIGUSR2, which then do not end the
// process. A second request to end, half a second later or more, ends the process at once. A signal
// that the process ignored before, such as SIGHUP under nohup, stays ignored. One that a parent
// blocked is not blocked meanwhile. One at a time, made and destroyed by one thread.
//
// The handler has a stack of its own in the thread that makes this. A handler that interrupts a
// product of oneDNN (seen with 2.6.3) on its stack corrupts the heap. Threads of start_thread()
// take no signals.
class StopSignals {
 public:
  StopSignals();
  ~StopSignals();
  StopSignals(const StopSignals&) = delete;
  StopSignals& operator=(const StopSignals&) = delete;

  // Forgets the request to save; a request to end stays.
  static StopRequests take();
  // The request to end, as in take(), which forgets nothing here.
  static int signal();

 private:
  sigset_t mask_before_ = {};
  std::vector<std::byte> stack_;  // empty: the thread had one before
};

// The exit code of a program that a signal ended: 128 and its number, as shells have it. SIGUSR1
// and SIGHUP count as SIGTERM, which they stand for.
int exit_code_of(int signal);

}  // namespace belfry
