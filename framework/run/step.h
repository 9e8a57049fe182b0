// The run-time side of a step: a linked plan, and a run of it.
#pragma once
#include <atomic>
#include <exception>
#include <functional>
#include <mutex>
#include <optional>
#include <span>
#include <vector>

#include "belfry/framework/run/linked_plan.h"
#include "belfry/framework/run/runner.h"
#include "belfry/framework/run/segments.h"
#include "belfry/framework/run/session.h"
#include "belfry/framework/run/staging.h"
#include "belfry/framework/trace/recording.h"

namespace belfry {

struct Step::State final : LinkedPlan {
  State(Plan compiled, Runner& owner);

  // Becomes `other`, another plan of the same fetches and feeds, and keeps the values that were
  // fetched; `other` is of no use then. Call it with runner.mutex.
  void replace(State& other);

  // Makes the communicators that the plan needs, and all connections that its collectives use; a
  // run does so, too, if they are not there any more. Waits for other runs.
  void connect();

  StagedFeeds stage(std::span<const Tensor> feeds, std::stop_token stop = {});
  // Copies the fetches to `results` before another thread can run the step again, or give it
  // another plan.
  void run(StagedFeeds staged, std::span<const Tensor> feeds, RunOptions options = {},
           std::vector<Tensor>* results = nullptr);

  Runner& runner;
  std::vector<Tensor> fetched;
  // Computes first values of variables: they do not depend on the step at which they are needed.
  bool initial = false;

 private:
  static constexpr int kAlone = -1;  // as a worker: it shares no launch

  bool shares() const { return locks_ == Locks::kEachVariable; }
  WorkerPool& pool() { return shares() ? alone_ : runner.pool; }

  // step_link.cc, step_link_gpu.cc: before the first run.
  void allocate();
  void link();
  void link_gpus();
  void link_gpu_tasks(std::span<const int> worker_of);
  GpuTasks make_gpu_tasks(const std::vector<Segment>& segments);
  void link_wait(std::size_t t, const Wait& wait, std::span<const int> worker_of);
  void share_out();
  void* address(int buffer);
  void fill_constants();

  // step.cc: a run, and what its workers do.
  void execute(const StagedFeeds& staged, std::span<const Tensor> feeds, RunOptions options);
  void check_intact();
  void set_feeds(std::span<const Tensor> feeds);
  void start_recording();
  void run_list(int worker);
  bool run_task(std::size_t t, int worker);
  // On this thread, and, unless `worker` is kAlone, with the help of others.
  void run_launch(std::size_t t, int worker);
  void run_shared(const Task& task, int worker);
  // A chunk of another worker is noted in `helped`, if that is given.
  bool take_chunk(Share& share, Ticket::End end, std::vector<Recording::Chunk>* helped = nullptr);
  bool help(int worker);
  void help_others(int worker);
  // Throws OutOfMemory naming the node where std::bad_alloc was thrown.
  void call(const Task& task, Range range) const;
  void fail() noexcept;
  void poison();
  [[noreturn]] void recover();
  void suspect(const PlanNode& writer);

  // step_locks.cc
  void link_locks();
  void hold_variables(const Task& task);
  void release_variables();

  // step_gpu.cc, step_capture.cc: what the threads do that enqueue for GPUs.
  void enqueue_list(int worker);
  bool enqueue_task(const GpuTask& task);
  void enqueue_launch(int launch, GpuStream& stream);
  // Of the plan's GPUs, in their threads. Throws as a run does.
  void capture();
  void capture_list(int worker);
  void capture_segment(GpuTask& task);
  // Until a lane of a GPU has finished so many launches; false if a worker failed. Helps others
  // meanwhile, unless `worker` is kAlone.
  bool await_stamp(std::size_t lane, std::int64_t epoch, int worker);
  void drain_gpus();

  // step_timers.cc: of runs that are traced
  void make_timers();
  void tie_clock(int gpu);
  void read_timers();

  // step_ranks.cc
  void link_ranks();
  void join_ranks();
  bool connected() const;
  void make_connections();
  void connect_list(int worker);
  // Throws CommError for what NCCL has failed with, or not done in time.
  void watch_ranks();
  std::string unfinished() const;
  void abort_ranks() noexcept;

  const Locks locks_;  // the plan's: another plan has the same
  Staging staging_;
  int slot_ = 0;  // of the current run's feeds
  std::function<void(int)> work_, capture_;
  bool replaying_ = false;              // in the current run
  std::mutex watching_;                 // over rank_lanes, but for `enqueued`
  std::atomic<int> busy_{0};            // workers that go through their lists
  std::optional<Recording> recording_;  // of the current run, if it is traced
  std::uint64_t step_ = 0;              // of the current run
  std::mutex running_;                  // one run of this step at a time
  WorkerPool alone_{1};                 // the caller of run()
  const Task* holder_ = nullptr;        // whose locks are held
  std::atomic<bool> failed_{false};
  std::atomic<bool> has_written_{false};
  std::mutex error_mutex_;
  std::exception_ptr error_;
};

}  // namespace belfry
