// The state of a compiled step: the executor of its plan, and its runs.
#pragma once
#include <functional>
#include <memory>
#include <mutex>
#include <span>
#include <vector>

#include "belfry/framework/run/cpu_executor.h"
#include "belfry/framework/run/exchanger.h"
#include "belfry/framework/run/gpu_executor.h"
#include "belfry/framework/run/session.h"
#include "belfry/framework/run/staging.h"
#include "belfry/framework/run/step_activity.h"

namespace belfry {

// Throws InvalidArgument naming a device of the plan, a declared one if there is any.
[[noreturn]] void refuse_dry_run(const Plan& plan,
                                 const std::vector<std::unique_ptr<Device>>& devices);

struct CompiledStep::State {
  // Everything that runs one plan. The executor of another plan for the same fetches and feeds may
  // replace it.
  struct Executor {
    Executor(std::shared_ptr<const Plan> plan, State& step);

    LinkedPlan linked;
    RunState run;
    std::unique_ptr<GpuExecutor> gpus;  // null if the plan has no work for them
    CpuExecutor cpus;
    std::unique_ptr<Exchanger> exchanger;  // null if the plan needs no other processes
    std::function<void(int)> body;         // the work of a thread in a run
    StepActivity activity;
  };

  // In a dry run nothing is linked. `into`: host memory for fetches, instead of tensors; null, or
  // missing, for fetches that have a tensor.
  State(Plan compiled, Runtime& owner, std::span<void* const> into = {});

  // Null in a dry run.
  std::unique_ptr<Executor> link(std::shared_ptr<const Plan> compiled);
  // Runs this linked plan from now on. The caller holds runtime.run_lock.
  void replace(std::shared_ptr<const Plan> compiled, std::unique_ptr<Executor> executor);
  // Makes the communicators that the plan needs, and opens all connections that its collectives
  // use. Waits for other runs. After a failure the next run makes them again.
  void connect();

  // Copies the fetches to `results` before another thread can run the step again.
  void run(StagedFeeds staged, std::span<const Tensor> feeds, RunOptions options = {},
           std::vector<Tensor>* results = nullptr);
  StagedFeeds stage(std::span<const Tensor> feeds, std::stop_token stop = {});
  // The plan that runs now.
  std::shared_ptr<const Plan> plan() const;

  Runtime& runtime;
  std::vector<Tensor> fetched;
  // Whether this step computes first values of variables, which do not depend on the step that
  // needs them.
  bool initial = false;

 private:
  bool runs_beside_others() const { return locks_ == LockDuration::kEachVariable; }
  WorkerPool& pool() { return runs_beside_others() ? alone_ : runtime.pool; }
  void allocate_fetches(const Plan& compiled, std::span<void* const> into);
  void execute(const StagedFeeds& staged, std::span<const Tensor> feeds, RunOptions options);
  void check_intact();
  void fetch_if_behind();
  void keep_for_others();
  void find_arenas();
  void set_feeds(std::span<const Tensor> feeds);
  void make_connections();
  void capture();
  // Calls body(t) for each thread t of the plan. Meanwhile the thread that talks to other processes
  // works for `exchanger`, which has begun; null: that thread is not needed. Throws the first
  // failure.
  void run_threads(const std::function<void(int)>& body, Exchanger* exchanger);
  [[noreturn]] void recover();

  std::vector<void*> results_;    // memory that fetches are copied to
  const LockDuration locks_;      // of the plan, and of each that replaces it
  mutable std::mutex replacing_;  // guards plan_
  std::shared_ptr<const Plan> plan_;
  std::unique_ptr<Executor> executor_;  // null in a dry run
  FeedStaging staging_;                 // ends first: its copies use the memory of the executor
  std::mutex running_;                  // one run of this step at a time
  WorkerPool alone_{1};                 // the caller of run()
};

}  // namespace belfry
