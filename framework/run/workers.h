// The threads that run plans, and the signals by which their strands order each other.
#pragma once
#include <atomic>
#include <chrono>
#include <condition_variable>
#include <cstdint>
#include <functional>
#include <mutex>
#include <thread>
#include <vector>

namespace belfry {

class ProcessGroup;

// Where workers sleep when there is nothing to do (an event count).
//
// Its whole state is one word. The word is odd while somebody sleeps or is about to. Each wake
// makes it even: a number that no sleeper has seen. A sleeper makes the word odd, then looks for
// news, then sleeps as long as the word keeps this value. A waker stores its news, then reads the
// word. All of this is sequentially consistent, so one of the two sees the other. Only the first
// waker after a sleeper makes a system call. A thread that sleeps again makes the word odd again
// before it looks, so it finds the news of all wakers that saw the word even.
class Gate {
 public:
  // Wakes all sleepers to look again. Costs one load if nobody sleeps, or if all sleepers have been
  // woken and have not run yet.
  void wake() {
    std::uint32_t seen = word_.load(std::memory_order_seq_cst);
    if (seen % 2 == 0) return;
    // This fails only if another waker was faster.
    if (word_.compare_exchange_strong(seen, seen + 1, std::memory_order_seq_cst))
      word_.notify_all();
  }
  // Sleeps until the next wake(), unless ready() holds once the word shows the sleeper. In that
  // case the next wake() may make a system call in vain.
  template <class Ready>
  void sleep(const Ready& ready) {
    const std::uint32_t seen = word_.fetch_or(1, std::memory_order_seq_cst) | 1;
    if (!ready()) word_.wait(seen, std::memory_order_acquire);
  }
  // Whether somebody sleeps, or is about to, and has not been woken yet.
  bool has_sleepers() const { return word_.load(std::memory_order_seq_cst) % 2 != 0; }

 private:
  std::atomic<std::uint32_t> word_{0};
};

// A monotonic count, such as that of finished launches, on its own cache line. One thread sets it,
// and only to counts that others wait for. Poison satisfies every wait.
class alignas(64) Signal {
 public:
  static constexpr std::int64_t kPoison = std::int64_t{1} << 62;

  bool reached(std::int64_t epoch) const { return epoch_.load(std::memory_order_seq_cst) >= epoch; }
  void set(std::int64_t epoch, Gate& gate) {
    epoch_.store(epoch, std::memory_order_seq_cst);
    gate.wake();
  }

 private:
  std::atomic<std::int64_t> epoch_{0};
};

// Wakes the thread that talks to other processes. It waits for news of them, or for ring().
class Alarm {
 public:
  // The thread waits in this group from now on. It then looks for what it waits for, so it misses
  // no earlier ring().
  void connect(ProcessGroup* group) { group_.store(group); }
  void ring();

 private:
  std::atomic<ProcessGroup*> group_{nullptr};
};

// How long threads spin before they sleep. Threads that wait for workers spin briefly, because
// workers are not pinned, and there may be fewer cores than threads.
inline constexpr std::chrono::nanoseconds kShortSpin = std::chrono::microseconds(20);
// For threads that wait for a GPU, or enqueue for one, if there are enough cores.
inline constexpr std::chrono::nanoseconds kGpuSpin = std::chrono::milliseconds(4);

// The spin of a step with this many threads. One core is left for the threads that make its input.
constexpr std::chrono::nanoseconds gpu_spin(int threads, int cores) {
  return cores > threads ? kGpuSpin : kShortSpin;
}

// Measures how long a thread has spun in vain. If the spin is longer than kShortSpin, the thread
// yields its core between two looks once kShortSpin is over.
class SpinTimer {
 public:
  explicit SpinTimer(std::chrono::nanoseconds spin = kShortSpin) : spin_(spin) {}
  void restart() { rounds_ = 0; }
  // Pauses for a moment. True once it is time to sleep.
  bool expired();

 private:
  std::chrono::nanoseconds spin_;
  std::int64_t rounds_ = 0;
  bool yields_ = false;
  std::chrono::steady_clock::time_point since_ = {};
};

// W workers, then the threads that enqueue for GPUs. The caller of run() is worker 0. Threads start
// with the pool and end with it.
class WorkerPool {
 public:
  // Throws DeviceError naming the worker whose thread cannot be started.
  explicit WorkerPool(int workers, int enqueuers = 0);
  ~WorkerPool();
  WorkerPool(const WorkerPool&) = delete;
  WorkerPool& operator=(const WorkerPool&) = delete;

  int workers() const { return workers_; }  // W

  // Calls body(0) here and, at the same time, body(t) in each thread t in [1, active). Returns when
  // every call that has begun has ended. A thread t < awaited_from is left out if its call has not
  // begun when body(0) returns: other programs may keep a woken thread off a core for longer than a
  // run lasts. All other threads are awaited. `body` must not throw. One run() at a time. With one
  // active thread no other is woken. Threads that wait for others, or for the next run(), spin for
  // `spin` before they sleep.
  void run(int active, const std::function<void(int)>& body,
           std::chrono::nanoseconds spin = kShortSpin, int awaited_from = 1);

  // The gate of the threads of this pool, and of all threads that wait in its runs.
  Gate& gate() { return gate_; }

 private:
  // The arguments of run().
  struct Request {
    std::int64_t number = 0;  // of the call of run()
    int active = 0;
    int awaited_from = 1;
    std::chrono::nanoseconds spin = kShortSpin;
    const std::function<void(int)>* body = nullptr;
    bool ends_pool = false;
  };

  void loop(int thread);
  // The last request. It has no body if this thread is not active in it, or is too late.
  Request begin_call(int thread);
  // Records that this thread has ended its call.
  void end_call();
  void stop();

  const int workers_;
  Gate gate_;
  Signal start_;                 // the number of request_, for sleeping threads
  std::atomic<int> awaited_{0};  // calls that run() still waits for
  std::mutex requesting_;        // guards the following fields
  Request request_;
  bool takes_late_ = false;  // whether a thread below awaited_from may still begin
  std::vector<std::jthread> threads_;
};

// Waits until done(): spins, then sleeps.
template <class Done>
void wait_until(const Done& done, Gate& gate, std::chrono::nanoseconds spin = kShortSpin) {
  SpinTimer timer(spin);
  while (!done())
    if (timer.expired()) gate.sleep(done);
}

// Waits until `signal` reaches `epoch`.
inline void await(const Signal& signal, std::int64_t epoch, Gate& gate,
                  std::chrono::nanoseconds spin = kShortSpin) {
  wait_until([&] { return signal.reached(epoch); }, gate, spin);
}

// Throws InvalidArgument if this thread flushes denormals, or does not round to nearest: results
// would differ between workers.
void check_floating_point_mode();

}  // namespace belfry
