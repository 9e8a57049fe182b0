// The threads that Belfry starts.
#pragma once
#include <csignal>
#include <functional>
#include <string>
#include <system_error>
#include <thread>
#include <utility>

namespace belfry {

// What a thread is for, and what to do if the system cannot start it.
struct ThreadUse {
  std::string what;  // "worker 3 of 64"
  std::string remedy;
};

// Called before each thread is started. Tests inject failures here, by throwing the
// std::system_error of the system. An empty hook removes it.
using ThreadHook = std::function<void(const ThreadUse& use)>;
void set_thread_hook(ThreadHook hook);

namespace detail {
// While it lives, this thread takes no signals except those of its own faults. Threads that it
// starts meanwhile never take any others.
class SignalsBlocked {
 public:
  SignalsBlocked();
  ~SignalsBlocked();
  SignalsBlocked(const SignalsBlocked&) = delete;
  SignalsBlocked& operator=(const SignalsBlocked&) = delete;

 private:
  sigset_t before_;
};

void call_thread_hook(const ThreadUse& use);
[[noreturn]] void refuse_thread(const ThreadUse& use, const std::system_error& error);
}  // namespace detail

// Starts a thread that calls `body`, with a stop token if it takes one. The new thread leaves
// signals to the program's threads: a handler on the stack of a computing thread can destroy memory
// (trainers/util/stop_signals.h). Throws DeviceError saying what the thread was for.
template <class Body>
std::jthread start_thread(const ThreadUse& use, Body&& body) {
  try {
    detail::call_thread_hook(use);
    const detail::SignalsBlocked blocked;
    return std::jthread(std::forward<Body>(body));
  } catch (const std::system_error& error) {
    detail::refuse_thread(use, error);
  }
}

}  // namespace belfry
