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

  // Call it before a run.
  void begin();
  // The work of a worker in a run. It follows routes, its own first, and takes parts of launches
  // that others share, until all routes have ended. Throws nothing: RunState::fail().
  void run(int worker);
  // The first launch in the global order that a worker runs now; none if all workers wait. Any
  // thread may ask.
  LaunchIndex running() const;
  // Where a run is: the next command of a route, null at its end, and whether a worker follows it;
  // and how many parts of the currently shared launches are done. Any thread may ask.
  struct Place {
    const Command* command;
    bool is_followed;
  };
  Place place(std::size_t route) const;
  std::int64_t parts_done() const;

 private:
  // Where a run is in a route. Only the worker that has claimed the route advances it.
  struct alignas(64) Progress {
    std::atomic<bool> claimed{false};
    std::atomic<std::size_t> next{0};  // command
  };

  // Calls attempt() until done(). A worker whose attempts fail spins. After that it naps if a route
  // waits for a stamp. Otherwise it swaps cores with a stopped worker, if there is one, and then
  // sleeps at the gate.
  template <class Done, class Attempt>
  void try_until(int worker, const Done& done, const Attempt& attempt,
                 std::chrono::nanoseconds spin);
  bool finished() const {
    return unfinished_.load(std::memory_order_seq_cst) == 0 || run_.failed();
  }
  // Claims a route and follows it as far as possible. False if it can claim none.
  bool follow_one(int worker);
  bool claim(std::size_t route);
  void release(std::size_t route);
  void follow(std::size_t route, int worker);
  void act(const Command& command, int shard, int worker);
  // The next command, or null at the end of the route.
  const Command* next(std::size_t route) const;
  // Whether a route waits for a GPU. No worker follows such a route, so an idle one must look for
  // the stamp.
  bool stamp_is_awaited() const;
  void run_launch(LaunchIndex launch, int shard, int worker);
  void run_shared(LaunchIndex launch, int worker);
  // Runs a part of a shared launch; false if none is left. For a launch of another worker, it
  // records the part in `helped`, if given.
  bool take_part(SharedLaunch& shared, Ticket::End end,
                 std::vector<Recording::Part>* helped = nullptr);
  // Takes a part of a launch that another worker shares; false if there is none.
  bool help(int worker);
  // Runs the kernel. Throws what the kernel throws, as rethrow_with_launch() does.
  void call(const LinkedLaunch& launch, WorkRange range) const;

  const LinkedPlan& linked_;
  RunState& run_;
  const Runtime& runtime_;
  GpuExecutor* const gpus_;
  VariableLocks locks_;
  WorkerCores cores_;
  std::vector<SharedLaunch> shared_;  // per worker
  std::vector<Progress> progress_;    // per route
  // Per worker: all routes in the order in which it tries them, its own first. It tries routes of
  // others from the back, where their workers come last.
  std::vector<std::vector<std::size_t>> order_;
  std::atomic<std::size_t> unfinished_{0};  // routes
};

}  // namespace belfry
