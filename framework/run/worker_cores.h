// Keeps the workers of a step on different cores, in competition with threads of other programs.
#pragma once
#include <atomic>
#include <vector>

#include <pthread.h>

namespace belfry {

// Workers are not pinned. If no core is idle, the system wakes a thread on the core of its waker.
// Then two workers share a core, while a thread of another program has a core to itself. So a woken
// worker moves away from the others. A worker with nothing to do gives its core to one that was
// stopped in the middle of its work, because that one delays the step.
class WorkerCores {
 public:
  static constexpr int kNoCore = -1;

  explicit WorkerCores(int workers) : seats_(static_cast<std::size_t>(workers)) {}

  // This thread becomes the worker. It moves away from the others as spread() does.
  void enter(int worker);
  // Records the core on which this thread, the worker, runs.
  void note(int worker);
  // The worker is about to sleep, or has finished. Nobody moves it until note() records its core
  // again.
  void leave(int worker);
  // Call it when the worker has just been woken. If it is on the core of another that has not left,
  // it moves to a core without workers. It stays if it may use no such core.
  void spread(int worker);
  // Call it when the worker found nothing to do. Looks at one of the others, each time at the next.
  // If that one has work on another core, but gets no time there, the two swap cores. Returns
  // whether they did.
  bool swap(int worker);
  // The core recorded last; kNoCore after leave().
  int core(int worker) const { return seat(worker).core.load(std::memory_order_acquire); }

 private:
  struct alignas(64) Seat {
    std::atomic<int> core{kNoCore};
    // Valid while the core is not kNoCore. swap() may still read it while the worker enters again.
    std::atomic<pthread_t> thread{};
    int looked_at = 0;  // the distance to the worker that swap() looked at last
  };

  Seat& seat(int worker) { return seats_[static_cast<std::size_t>(worker)]; }
  const Seat& seat(int worker) const { return seats_[static_cast<std::size_t>(worker)]; }
  pthread_t thread_of(int worker) const {
    return seat(worker).thread.load(std::memory_order_relaxed);
  }
  int workers() const { return static_cast<int>(seats_.size()); }
  bool is_shared(int worker) const;
  // False if the worker's thread may not use the core, or another worker is being moved. The
  // affinity mask of the thread is restored afterwards.
  bool move(int worker, int core);

  std::vector<Seat> seats_;  // per worker
};

}  // namespace belfry
