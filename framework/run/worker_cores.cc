#include "belfry/framework/run/worker_cores.h"

#include <chrono>
#include <cstdint>
#include <mutex>
#include <optional>

#include <sched.h>
#include <time.h>

namespace belfry {
namespace {

std::optional<cpu_set_t> usable_by(pthread_t thread) {
  cpu_set_t cores;
  if (pthread_getaffinity_np(thread, sizeof cores, &cores) != 0) return std::nullopt;
  return cores;
}

// The index-th core of the set, which is not empty; the index wraps around.
int nth_core(const cpu_set_t& cores, int index) {
  int left = index % CPU_COUNT(&cores);
  int core = 0;
  while (!CPU_ISSET(core, &cores) || left-- > 0) ++core;
  return core;
}

// The processor time of the thread, in nanoseconds.
std::int64_t time_of(pthread_t thread) {
  clockid_t clock;
  timespec time{};
  if (pthread_getcpuclockid(thread, &clock) == 0) clock_gettime(clock, &time);
  return std::int64_t{time.tv_sec} * 1'000'000'000 + time.tv_nsec;
}

// Whether the thread gets no processor time while this one watches it.
bool has_stopped(pthread_t thread) {
  // A thread that runs gains time in each microsecond. Slices of the system last milliseconds.
  constexpr auto kWatch = std::chrono::microseconds(5);
  const std::int64_t before = time_of(thread);
  const auto end = std::chrono::steady_clock::now() + kWatch;
  while (std::chrono::steady_clock::now() < end) {
  }
  return time_of(thread) == before;
}

}  // namespace

void WorkerCores::enter(int worker) {
  seat(worker).thread.store(pthread_self(), std::memory_order_relaxed);  // note() publishes it
  spread(worker);
}

void WorkerCores::note(int worker) {
  seat(worker).core.store(sched_getcpu(), std::memory_order_release);
}

void WorkerCores::leave(int worker) { seat(worker).core.store(kNoCore, std::memory_order_relaxed); }

bool WorkerCores::is_shared(int worker) const {
  for (int other = 0; other < workers(); ++other)
    if (other != worker && core(other) != kNoCore && core(other) == core(worker)) return true;
  return false;
}

void WorkerCores::spread(int worker) {
  note(worker);
  if (!is_shared(worker)) return;
  std::optional<cpu_set_t> free = usable_by(thread_of(worker));
  if (!free) return;
  for (int other = 0; other < workers(); ++other)
    if (const int taken = core(other); taken != kNoCore) CPU_CLR(taken, &*free);
  if (CPU_COUNT(&*free) != 0) move(worker, nth_core(*free, worker));
}

bool WorkerCores::swap(int worker) {
  if (workers() == 1) return false;
  Seat& own = seat(worker);
  own.looked_at = own.looked_at % (workers() - 1) + 1;
  const int other = (worker + own.looked_at) % workers();
  const int core_of_other = core(other);
  note(worker);
  const int own_core = core(worker);
  if (core_of_other == kNoCore || core_of_other == own_core || !has_stopped(thread_of(other)) ||
      core(other) != core_of_other)
    return false;
  if (!move(other, own_core)) return false;
  move(worker, core_of_other);
  return true;
}

bool WorkerCores::move(int worker, int core) {
  // Only one thread moves workers at a time. Another mover would take the mask of one core for the
  // thread's own.
  static std::mutex moving;
  const std::unique_lock lock(moving, std::try_to_lock);
  if (!lock) return false;
  const pthread_t thread = thread_of(worker);
  const std::optional<cpu_set_t> usable = usable_by(thread);
  if (!usable || !CPU_ISSET(core, &*usable)) return false;
  cpu_set_t one;
  CPU_ZERO(&one);
  CPU_SET(core, &one);
  if (pthread_setaffinity_np(thread, sizeof one, &one) != 0) return false;
  pthread_setaffinity_np(thread, sizeof *usable, &*usable);
  int noted = this->core(worker);
  if (noted != kNoCore)  // a worker that has left meanwhile has no core
    seat(worker).core.compare_exchange_strong(noted, core, std::memory_order_release);
  return true;
}

}  // namespace belfry
