// How a step runs on CPUs: workers follow their commands, and share long launches part by part.
#pragma once
#include <atomic>
#include <memory>
#include <vector>

#include "belfry/framework/run/linked_plan.h"
#include "belfry/framework/run/run_state.h"
#include "belfry/framework/run/ticket.h"
#include "belfry/framework/run/variable_locks.h"

namespace belfry {

class CpuExecutor {
 public:
  // `gpus` may be null if the plan has none.
  CpuExecutor(const LinkedPlan& linked, RunState& run, Runtime& runtime, GpuExecutor* gpus);

  // Before a run.
  void begin() { busy_.store(linked_.workers, std::memory_order_relaxed); }
  // What a worker does in a run: its own commands, then parts of others until all are done. Throws
  // nothing: RunState::fail().
  void run(int worker);

 private:
  bool follow(const std::vector<Command>& commands, int worker);
  bool await(const Command& command, int worker);
  void run_launch(LaunchIndex launch, int worker);
  void run_shared(LaunchIndex launch, int worker);
  // Runs a part of a shared launch; false if none is left. That of another worker is noted in
  // `helped`, if that is given.
  bool take_part(SharedLaunch& shared, Ticket::End end,
                 std::vector<Recording::Part>* helped = nullptr);
  // Takes a part of what any other worker shares; false if none does.
  bool help(int worker);
  void help_others(int worker);
  // Throws OutOfMemory naming the node where std::bad_alloc was thrown.
  void call(LaunchIndex launch, Range range) const;

  const LinkedPlan& linked_;
  RunState& run_;
  GpuExecutor* const gpus_;
  VariableLocks locks_;
  std::vector<SharedLaunch> shared_;  // per worker
  std::atomic<int> busy_{0};          // workers that follow their commands
};

}  // namespace belfry
