// Keeps the workers of a step on different cores, beside threads of other programs.
#pragma once
#include <atomic>
#include <vector>

#include <pthread.h>

namespace belfry {

// Workers are not pinned. If no core is idle, the system wakes a thread on the core of its waker.
// Then two workers share a core, and a foreign thread has another to itself. So a woken worker
// moves away from the others. A worker with nothing to do gives its core to one that has stopped in
// the middle of its work, because that one delays the step.
class WorkerCores {
 public:
  static constexpr int kNoCore = -1;

  explicit WorkerCores(int workers) : seats_(static_cast<std::size_t>(workers)) {}

  // This thread is the worker from now on. It moves away from the others as spread() does.
  void enter(int worker);
  // Notes on which core this thread, the worker, runs.
  void note(int worker);
  // The worker is about to sleep, or has finished. Nobody moves it until it notes its core again.
  void leave(int worker);
  // The worker has just been woken. If it is on the core of another that has not left, it moves to
  // a core without workers. If it may use no such core, it stays.
  void spread(int worker);
  // The worker found nothing to do. Looks at one of the others, each time at the next. If that one
  // is at work on another core, but gets no time there, the two swap cores. Says whether they did.
  bool swap(int worker);
  // The core that was noted last; kNoCore after leave().
  int core(int worker) const { return seat(worker).core.load(std::memory_order_acquire); }

 private:
  struct alignas(64) Seat {
    std::atomic<int> core{kNoCore};
    pthread_t thread{};  // valid while the core is not kNoCore
    int looked_at = 0;   // the worker that swap() looked at last, counted from this one
  };

  Seat& seat(int worker) { return seats_[static_cast<std::size_t>(worker)]; }
  const Seat& seat(int worker) const { return seats_[static_cast<std::size_t>(worker)]; }
  int workers() const { return static_cast<int>(seats_.size()); }
  bool is_shared(int worker) const;
  // False if the worker's thread may not use the core, or another is moved at present. The affinity
  // mask of the thread is afterwards what it was.
  bool move(int worker, int core);

  std::vector<Seat> seats_;  // per worker
};

}  // namespace belfry
