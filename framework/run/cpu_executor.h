// How a step runs on CPUs. Workers claim routes (a strand, or a shard of one) and follow their
// commands. They share long launches part by part.
#pragma once
#include <atomic>
#include <chrono>
#include <cstddef>
#include <vector>

#include "belfry/framework/run/linked_plan.h"
#include "belfry/framework/run/run_state.h"
#include "belfry/framework/run/ticket.h"
#include "belfry/framework/run/variable_locks.h"
#include "belfry/framework/run/worker_cores.h"

namespace belfry {

class CpuExecutor {
 public:
  // `gpus` may be null if the plan has none.
  CpuExecutor(const LinkedPlan& linked, RunState& run, Runtime& runtime, GpuExecutor* gpus);

  // Before a run.
  void begin();
  // What a worker does in a run: follows routes, its own first, and takes parts of what others
  // share, until all routes are at their end. Throws nothing: RunState::fail().
  void run(int worker);
  // The first launch in the global order that a worker runs at present; none if workers wait. Any
  // thread may ask.
  LaunchIndex running() const;

 private:
  // How far a run is in a route. The worker that has claimed it alone moves it on.
  struct alignas(64) Progress {
    std::atomic<bool> claimed{false};
    std::atomic<std::size_t> next{0};  // command
  };

  // Calls attempt() until done(). A worker whose attempt is in vain spins. Then it naps if a stamp
  // is awaited. Else it sleeps at the gate, once it has swapped cores with a worker that has
  // stopped.
  template <class Done, class Attempt>
  void try_until(int worker, const Done& done, const Attempt& attempt,
                 std::chrono::nanoseconds spin);
  bool finished() const {
    return unfinished_.load(std::memory_order_seq_cst) == 0 || run_.failed();
  }
  // Claims a route and follows it as far as it goes; false if none can be claimed.
  bool follow_one(int worker);
  bool claim(std::size_t route);
  void release(std::size_t route);
  void follow(std::size_t route, int worker);
  void act(const Command& command, int shard, int worker);
  // The command that is next, or null at the end of the route.
  const Command* next(std::size_t route) const;
  // Whether a route waits for a GPU. No worker follows it, so an idle one must look for the stamp.
  bool stamp_is_awaited() const;
  void run_launch(LaunchIndex launch, int shard, int worker);
  void run_shared(LaunchIndex launch, int worker);
  // Runs a part of a shared launch; false if none is left. That of another worker is noted in
  // `helped`, if that is given.
  bool take_part(SharedLaunch& shared, Ticket::End end,
                 std::vector<Recording::Part>* helped = nullptr);
  // Takes a part of what any other worker shares; false if none does.
  bool help(int worker);
  // Throws what the kernel throws, as rethrow_with_launch() does.
  void call(const LinkedLaunch& launch, WorkRange range) const;

  const LinkedPlan& linked_;
  RunState& run_;
  const Runtime& runtime_;
  GpuExecutor* const gpus_;
  VariableLocks locks_;
  WorkerCores cores_;
  std::vector<SharedLaunch> shared_;  // per worker
  std::vector<Progress> progress_;    // per route
  // Per worker: the routes in the order in which it looks at them. Its own come first. It takes
  // those of others from the end, where their workers come last.
  std::vector<std::vector<std::size_t>> order_;
  std::atomic<std::size_t> unfinished_{0};  // routes
};

}  // namespace belfry
