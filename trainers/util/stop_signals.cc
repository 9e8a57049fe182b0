#include "belfry/trainers/util/stop_signals.h"

#include <algorithm>
#include <array>
#include <atomic>
#include <csignal>
#include <cstdint>
#include <ctime>

#include "belfry/trainers/util/clock.h"

namespace belfry {
namespace {

constexpr std::array kSignals = {SIGINT, SIGTERM, SIGHUP, SIGUSR1, SIGUSR2};

std::atomic<int> asked_to_end{0};
std::atomic<bool> asked_to_save{false};
std::atomic<std::int64_t> asked_at{0};  // time of the first signal, in nanoseconds; 0: none came
static_assert(std::atomic<int>::is_always_lock_free && std::atomic<bool>::is_always_lock_free &&
              std::atomic<std::int64_t>::is_always_lock_free);

// Signals within this time count as one request: `timeout` signals a child and then its group.
constexpr std::int64_t kOneRequest = 500'000'000;

std::int64_t nanoseconds_now() {
  timespec now = {};
  ::clock_gettime(CLOCK_MONOTONIC, &now);  // signal handlers may call it
  return std::int64_t{now.tv_sec} * 1'000'000'000 + now.tv_nsec;
}

std::array<struct sigaction, kSignals.size()> before;

// It may interrupt any code.
void note(int signal) {
  if (signal == SIGUSR2) {
    asked_to_save.store(true);
    return;
  }
  std::int64_t first = 0;
  const std::int64_t now = nanoseconds_now();
  if (asked_at.compare_exchange_strong(first, now)) {
    asked_to_end.store(signal);
    return;
  }
  if (now - first < kOneRequest) return;
  std::signal(signal, SIG_DFL);
  ::raise(signal);
}

sigset_t stop_signal_set() {
  sigset_t all;
  ::sigemptyset(&all);
  for (const int signal : kSignals) ::sigaddset(&all, signal);
  return all;
}

}  // namespace

StopSignals::StopSignals() {
  stack_t stack = {};
  ::sigaltstack(nullptr, &stack);
  if ((stack.ss_flags & SS_DISABLE) != 0) {
    stack_.resize(std::max<std::size_t>(64 << 10, static_cast<std::size_t>(SIGSTKSZ)));
    stack = {.ss_sp = stack_.data(), .ss_flags = 0, .ss_size = stack_.size()};
    ::sigaltstack(&stack, nullptr);
  }
  asked_at.store(0);
  asked_to_end.store(0);
  asked_to_save.store(false);
  struct sigaction action = {};
  action.sa_handler = note;
  action.sa_flags = SA_RESTART | SA_ONSTACK;
  action.sa_mask = stop_signal_set();
  for (std::size_t i = 0; i < kSignals.size(); ++i) {
    ::sigaction(kSignals[i], nullptr, &before[i]);
    // A signal that a parent ignored, as nohup does, stays ignored.
    if (before[i].sa_handler != SIG_IGN) ::sigaction(kSignals[i], &action, nullptr);
  }
  // Last: signals that waited come now.
  ::pthread_sigmask(SIG_UNBLOCK, &action.sa_mask, &mask_before_);
}

StopSignals::~StopSignals() {
  ::pthread_sigmask(SIG_SETMASK, &mask_before_, nullptr);
  for (std::size_t i = 0; i < kSignals.size(); ++i) ::sigaction(kSignals[i], &before[i], nullptr);
  const stack_t none = {.ss_sp = nullptr, .ss_flags = SS_DISABLE, .ss_size = 0};
  if (!stack_.empty()) ::sigaltstack(&none, nullptr);
}

StopRequests StopSignals::take() {
  return {.signal = asked_to_end.load(), .save = asked_to_save.exchange(false)};
}

int StopSignals::signal() { return asked_to_end.load(); }

int exit_code_of(int signal) {
  return 128 + (signal == SIGUSR1 || signal == SIGHUP ? SIGTERM : signal);
}

}  // namespace belfry
